import type { Database } from '../tables/database.js';
import { matcherOf } from '../tables/durables.table.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { Subscription } from './subscription.js';

/**
 * Writes the durables of this app and the types they cover, and returns the numbers they bear in the database. Ordered
 * against every fan-out by an advisory lock, so that a new durable misses no event published from now on and gets none
 * from before. Repeating it changes nothing.
 */
export async function registerDurables(
  database: Database,
  connection: InfrastructureConnection,
  subscriptions: readonly Subscription[],
  /** A broker carries first deliveries. */
  brokered: boolean,
): Promise<ReadonlyMap<number, Subscription>> {
  if (subscriptions.length === 0) return new Map();
  const [, , { rows }] = await connection.run(
    database.durables.registrationLock(),
    database.durables.rename(json(subscriptions.map(({ durable, formerly }) => ({ durable, formerly })))),
    database.durables.register(
      subscriptions.map((s) => s.durable),
      json(subscriptions.flatMap(typeRows)),
    ),
    ...(brokered ? [database.durables.beginBrokered(subscriptions.map((s) => s.durable))] : []),
  );
  const byName = new Map(subscriptions.map((s) => [s.durable, s]));
  return new Map(rows.flatMap((row) => (byName.has(row.name) ? [[row.id, byName.get(row.name) as Subscription]] : [])));
}

/** A type's former names are types of their own: what was published under them is still to be handled. */
function typeRows({ durable, types, from }: Subscription): readonly object[] {
  const beginning = from === 'beginning';
  return types.flatMap(({ pattern, formerly }) => [
    { durable, pattern, matcher: matcherOf(pattern), beginning, formerly },
    ...formerly.map((name) => ({ durable, pattern: name, matcher: matcherOf(name), beginning, formerly: [] })),
  ]);
}

function json(value: unknown): string {
  return JSON.stringify(value);
}
