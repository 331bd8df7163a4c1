import type { StrayDurable } from '../tables/server-facts.js';
import { onPool } from './ask.js';
import { type BootCheck, works } from './boot-check.js';

/** Durables in the database without code here collect deliveries for ever; only people know whether another app has them. */
export const strayDurablesCheck: BootCheck = {
  name: 'durables',
  run: async (context, warn) => {
    const { settings, database, registry } = context;
    if (!works(settings)) return [];
    const own = registry.all.flatMap(({ durable, formerly }) => [durable, ...formerly]);
    for (const durable of await onPool(context, (ask) => ask(database.facts.strayDurables(own))))
      warn(durable.state === 'active' ? unknown(durable, settings.schema) : switchedOff(durable, settings.schema));
    return [];
  },
};

function unknown({ id, name, seen, waiting }: StrayDurable, schema: string): string {
  const count = waiting > 10_000 ? 'more than 10,000' : waiting.toLocaleString('en');
  return `durable '${name}' is registered in the database (last on ${seen ?? 'an unknown day'}), but no handler of this app has it; deliveries that wait for it: ${count}, and each of its events adds one. If another app handles it, all is well. If it was renamed or removed, end it: UPDATE ${schema}.durables SET state = 'retired' WHERE id = ${id}; then, to drop what waits: DELETE FROM ${schema}.deliveries WHERE durable = ${id}`;
}

function switchedOff({ id, name, state }: StrayDurable, schema: string): string {
  return `durable '${name}' has a handler in this app but is '${state}' in the database, so no new event is delivered to it; if it is wanted again: UPDATE ${schema}.durables SET state = 'active' WHERE id = ${id}`;
}
