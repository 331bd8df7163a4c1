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
): Promise<ReadonlyMap<number, Subscription>> {
  if (subscriptions.length === 0) return new Map();
  const types = subscriptions.flatMap((s) => s.types.map((type) => ({ durable: s.durable, type, from: s.from })));
  const [, { rows }] = await connection.run(
    database.durables.registrationLock(),
    database.durables.register(
      subscriptions.map((s) => s.durable),
      types.map((t) => t.durable),
      types.map((t) => t.type),
      types.map((t) => matcherOf(t.type)),
      types.map((t) => (t.from === 'beginning' ? 't' : 'f')),
    ),
  );
  const byName = new Map(subscriptions.map((s) => [s.durable, s]));
  return new Map(rows.flatMap((row) => (byName.has(row.name) ? [[row.id, byName.get(row.name) as Subscription]] : [])));
}
