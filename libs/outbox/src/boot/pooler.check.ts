import type { ClientBase, QueryResult } from 'pg';
import { errorCode } from '../core/database-errors.js';
import { withDeadline } from '../core/deadline.js';
import { destroy } from '../tables/infrastructure-connection.js';
import { lockKeys } from '../tables/schema/schema-name.js';
import { type BootCheck, type BootContext, works } from './boot-check.js';

/** Rounds of two transactions that overlap, twenty in all; each round is four round trips. */
const rounds = 10;
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
    const pool = await poolTraits(context);
    database.pool = pool;
    if (pool.moves && !pool.prepared)
      warn(
        "the DataSource's connections lead through a transaction pooler that does not follow prepared statements: they are not used, which costs about half of the speed of publishing; PgBouncer follows them from 1.21 on (max_prepared_statements), or use session pooling",
      );
    if (!works(settings) || !(await infrastructureMoves(context))) return [];
    const given =
      settings.infrastructureUrl === undefined ? "the DataSource's connections lead" : 'infrastructure.url leads';
    return [
      {
        check: 'pooler',
        message: `${given} through a transaction pooler, where neither the session locks that a worker stands on nor LISTEN work; give the direct address of the server (or of a session pool) for the few connections that need it: forRoot({ infrastructure: { url } })`,
      },
    ];
  },
};

async function poolTraits({ dataSource, database }: BootContext) {
  // With one connection there is nobody to take turns with.
  if (database.poolMax < 2) return database.pool;
  const runners = [dataSource.createQueryRunner('master'), dataSource.createQueryRunner('master')] as const;
  try {
    const clients = [await database.clientOf(runners[0]), await database.clientOf(runners[1])] as const;
    const moves = (await takeTurns(clients)).moved;
    return { moves, prepared: !moves || (await bearsNames(clients)) };
  } finally {
    for (const runner of runners) await runner.release();
  }
}

async function bearsNames(clients: Pair): Promise<boolean> {
  const named = { name: 'outbox_pooler_probe', text: 'SELECT 1 AS outbox_pooler_probe' };
  try {
    await takeTurns(clients, 'true', (client) => client.query(named));
    return true;
  } catch (error) {
    for (const client of clients) await client.query('ROLLBACK');
    if (unknownNames.has(errorCode(error) ?? '')) return false;
    throw error;
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
  } finally {
    for (const client of clients)
      await withDeadline('closing', 1_000, client.end(), () => destroy(client)).catch(() => {});
  }
}

type Pair = readonly [ClientBase, ClientBase];

/**
 * Whether one client's transactions ran in several sessions, and what `ask`, an expression, was in those of the first.
 * All orders of beginning and ending in turn: some poolers lend the session that was given back last, others the first.
 */
async function takeTurns(
  clients: Pair,
  ask = 'true',
  also: (client: ClientBase) => Promise<unknown> = async () => {},
): Promise<{ moved: boolean; said: readonly boolean[] }> {
  const sessions = new Map(clients.map((client) => [client, new Set<number>()]));
  const said: boolean[] = [];
  for (let round = 0; round < rounds; round++) {
    for (const client of ordered(clients, round % 2 === 0)) {
      // As one message: BEGIN, and who we are. Node-postgres answers with a result for each.
      const answer: unknown = await client.query(`BEGIN; SELECT pg_backend_pid() AS pid, ${ask} AS said`);
      const [{ pid, said: yes }] = (answer as [unknown, QueryResult])[1].rows;
      sessions.get(client)?.add(pid);
      if (client === clients[0]) said.push(yes);
      await also(client);
    }
    for (const client of ordered(clients, round % 4 < 2)) await client.query('COMMIT');
  }
  return { moved: [...sessions.values()].some((pids) => pids.size > 1), said };
}

function ordered(clients: Pair, straight: boolean): readonly ClientBase[] {
  return straight ? clients : clients.toReversed();
}
