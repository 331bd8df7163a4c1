import type { Log } from '../core/throttled-log.js';
import { sendOne } from '../tables/wire/batch.js';
import type { Bound } from '../tables/wire/statement.js';
import type { BootContext } from './boot-check.js';

/** Sends one statement; which connection it goes by decides whose rights it sees. */
export type Ask = <Row>(bound: Bound<Row>) => Promise<readonly Row[]>;

const silent: Log = { log: () => {}, warn: () => {}, error: () => {} };

/** On a connection of the DataSource's pool, as handlers and publishers. */
export async function onPool<T>({ dataSource, database }: BootContext, look: (ask: Ask) => Promise<T>): Promise<T> {
  const runner = dataSource.createQueryRunner('master');
  try {
    const client = await database.clientOf(runner);
    return await look(async (bound) => (await sendOne(client, bound)).rows);
  } finally {
    await runner.release();
  }
}

/** On a connection such as the relay's. Without a URL of its own it is the pool's role and database, so nobody is asked. */
export async function onInfrastructure<T>(
  { database }: BootContext,
  look: (ask: Ask) => Promise<readonly T[]>,
): Promise<readonly T[]> {
  if (database.infrastructureUrl === undefined) return [];
  const connection = database.infrastructure('boot', silent);
  try {
    return await look(async (bound) => (await connection.run(bound))[0].rows);
  } finally {
    await connection.close();
  }
}

/** As every role that the process goes by: the pool's, and infrastructure's when it has a URL of its own. */
export async function asEachRole<T>(
  context: BootContext,
  look: (ask: Ask) => Promise<readonly T[]>,
): Promise<readonly T[]> {
  return [...(await onPool(context, look)), ...(await onInfrastructure(context, look))];
}
