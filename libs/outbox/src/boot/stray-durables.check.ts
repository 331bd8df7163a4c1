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
      warn(durable.state === 'active' ? unknown(durable) : switchedOff(durable));
    return [];
  },
};

function unknown({ name, seen, waiting }: StrayDurable): string {
  const count = waiting > 10_000 ? 'more than 10,000' : waiting.toLocaleString('en');
  return `durable '${name}' is registered in the database (last on ${seen ?? 'an unknown day'}), but no handler of this app has it; deliveries that wait for it: ${count}, and each of its events adds one. If another app handles it, all is well. If it was renamed, say so with formerly; if it was removed, end it with the injected Durables: durables.retire('${name}'), which drops what waits`;
}

function switchedOff({ name, state }: StrayDurable): string {
  return `durable '${name}' has a handler in this app but is '${state}' in the database, so no new event is delivered to it; if it is wanted again: durables.revive('${name}') of the injected Durables`;
}
