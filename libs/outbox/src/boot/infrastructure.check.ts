import { onInfrastructure, onPool } from './ask.js';
import { type BootCheck, works } from './boot-check.js';

/** A URL of another database would relay, lock and fetch there, and nothing that is published here would ever move. */
export const infrastructureCheck: BootCheck = {
  name: 'infrastructure',
  run: async (context) => {
    const { settings, database } = context;
    if (!works(settings)) return [];
    const others = await onInfrastructure(context, (ask) => ask(database.facts.place()));
    if (others.length === 0) return [];
    const [own] = await onPool(context, (ask) => ask(database.facts.place()));
    return others
      .filter((other) => other.place !== own?.place)
      .map((other) => ({
        check: 'infrastructure',
        message: `infrastructure.url leads to another database than the DataSource ('${other.place}' and '${own?.place}', each with its server's start); give the direct address of the same database`,
      }));
  },
};
