import type { Subscription } from '../consume/subscription.js';
import { onPool } from './ask.js';
import { type BootCheck, works } from './boot-check.js';

/**
 * A durable takes over one former name, and only before it has a row of its own. Otherwise the former one would stand
 * beside it, collecting deliveries that nobody fetches.
 */
export const renamesCheck: BootCheck = {
  name: 'durables',
  run: async (context) => {
    const { settings, database, registry } = context;
    const renamed = registry.all.filter(({ formerly }) => formerly.length > 0);
    if (!works(settings) || renamed.length === 0) return [];
    const names = renamed.flatMap(({ durable, formerly }) => [durable, ...formerly]);
    const rows = await onPool(context, (ask) => ask(database.facts.named(names)));
    const standing = new Set(rows.map(({ name }) => name));
    return renamed.flatMap((subscription) => {
      const meeting = [...subscription.formerly, subscription.durable].filter((name) => standing.has(name));
      const former = meeting.filter((name) => name !== subscription.durable);
      if (former.length === 0 || meeting.length < 2) return [];
      return [{ check: 'durables', message: message(subscription, meeting, former, settings.schema) }];
    });
  },
};

function message({ where, durable }: Subscription, meeting: string[], former: string[], schema: string): string {
  const quoted = (names: string[]): string => names.map((name) => `'${name}'`).join(', ');
  return `${where} (durable '${durable}') cannot take over ${quoted(former)}: ${quoted(meeting)} are in the database, each with deliveries and marks of its own. Take ${quoted(former)} out of formerly and keep handlers for what waits for them until it is done, then end them: UPDATE ${schema}.durables SET state = 'retired' WHERE name IN (${quoted(former)})`;
}
