import { once } from 'node:events';
import { errorCode } from '../core/database-errors.js';
import { withDeadline } from '../core/deadline.js';
import type { PoolTraits } from '../tables/database.js';
import { destroy } from '../tables/infrastructure-connection.js';
import { lockKeys } from '../tables/schema/schema-name.js';
import { type BootCheck, type BootContext, type Warn, works } from './boot-check.js';
import { OneSessionOnly, type Pair, takeTurns } from './take-turns.js';

const connectMs = 10_000;
/** Whoever asks for a name that its session does not know, or gives one that it knows already. */
const unknownNames = new Set(['26000', '42P05']);

/**
 * A transaction pooler between us and the server. On the application's pool it is borne: statements then go without
 * names if it does not follow prepared ones. Where a worker holds its locks and listens it is refused: the lock would be
 * some other session's in the next moment, and NOTIFY never heard. Sessions that differ prove a pooler; that they are the
 * same proves nothing, since a quiet pooler lends the same one again: so two clients take turns.
 */
export const poolerCheck: BootCheck = {
  name: 'pooler',
  run: async (context, warn) => {
    const { database, settings } = context;
    database.pool = await poolTraits(context, warn);
    if (!works(settings) || !(await infrastructureMoves(context))) return [];
    const given =
      settings.infrastructureUrl === undefined ? "the DataSource's connections lead" : 'infrastructure.url leads';
    return [
      {
        check: 'pooler',
        message: `${given} through a transaction pooler (or one with a single session), where neither the session locks that a worker stands on nor LISTEN work; give the direct address of the server (or of a session pool) for the few connections that need it: forRoot({ infrastructure: { url } })`,
      },
    ];
  },
};

/** What holds behind every pooler. Without names publishing costs about twice as much. */
const anyPooler: PoolTraits = { moves: true, prepared: false };

async function poolTraits({ dataSource, database }: BootContext, warn: Warn): Promise<PoolTraits> {
  // With one connection there is nobody to take turns with; a process with so small a pool is a publisher's.
  if (database.poolMax < 2) return anyPooler;
  const runners = [dataSource.createQueryRunner('master'), dataSource.createQueryRunner('master')] as const;
  try {
    const clients = [await database.clientOf(runners[0]), await database.clientOf(runners[1])] as const;
    return await traitsOf(clients, warn);
  } finally {
    for (const runner of runners) await runner.release();
  }
}

async function traitsOf(clients: Pair, warn: Warn): Promise<PoolTraits> {
  try {
    if (!(await takeTurns(clients)).moved) return { moves: false, prepared: true };
    if (await bearsNames(clients)) return { moves: true, prepared: true };
    warn(
      "the DataSource's connections lead through a transaction pooler that does not follow prepared statements: they are not used, which costs about half of the speed of publishing; PgBouncer follows them from 1.21 on (max_prepared_statements), or use session pooling",
    );
  } catch (error) {
    if (!(error instanceof OneSessionOnly)) throw error;
    for (const client of clients) {
      const ended = once(client, 'end');
      destroy(client);
      await ended.catch(() => {});
    }
    warn(
      "the DataSource's connections lead through a pooler that lends this process no second session of the server while it uses one: one transaction runs at a time, and whoever needs a second one inside waits for ever; raise its pool size (PgBouncer: default_pool_size, or pool_size of the database) to what all processes use at a time. Prepared statements are not used",
    );
  }
  return anyPooler;
}

/** Each under a name of its own: one that both had given would be known in either session. */
async function bearsNames(clients: Pair): Promise<boolean> {
  try {
    const { moved } = await takeTurns(clients, 'true', (client) =>
      client.query({ name: `outbox_pooler_probe_${clients.indexOf(client)}`, text: 'SELECT 1' }),
    );
    return moved;
  } catch (error) {
    if (!unknownNames.has(errorCode(error) ?? '')) throw error;
    for (const client of clients) await client.query('ROLLBACK');
    return false;
  }
}

async function infrastructureMoves({ database, settings }: BootContext): Promise<boolean> {
  const clients = [database.probe(), database.probe()] as const;
  for (const client of clients) client.on('error', () => {});
  const key = lockKeys(settings.schema).schema;
  // Random, because behind a pooler the lock stays with a session that is never ours again.
  const probe = 1 + Math.floor(Math.random() * 2 ** 30);
  const held = `EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
    AND classid::bigint = ${key}::bigint & 4294967295 AND objid::bigint = ${probe})`;
  try {
    for (const client of clients) await withDeadline('connecting', connectMs, client.connect());
    await clients[0].query(`SELECT pg_advisory_lock(${key}, ${probe})`);
    const { moved, said } = await takeTurns(clients, held);
    await clients[0].query(`SELECT pg_advisory_unlock(${key}, ${probe})`);
    return moved || said.includes(false);
  } catch (error) {
    if (error instanceof OneSessionOnly) return true;
    throw error;
  } finally {
    for (const client of clients)
      await withDeadline('closing', 1_000, client.end(), () => destroy(client)).catch(() => {});
  }
}
