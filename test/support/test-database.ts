import { randomBytes } from 'node:crypto';
import { Client, type QueryResultRow } from 'pg';

/** A database of a test file's own, on the run's server or the one that DATABASE_URL names. */
export interface TestDatabase {
  readonly url: string;
  query<R extends QueryResultRow = QueryResultRow>(sql: string, values?: unknown[]): Promise<R[]>;
  /** The first column of the first row. */
  value<T>(sql: string, values?: unknown[]): Promise<T>;
  drop(): Promise<void>;
}

export async function createDatabase(server = serverUrl()): Promise<TestDatabase> {
  const name = `outbox_test_${randomBytes(6).toString('hex')}`;
  await once(server, `CREATE DATABASE ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  let connected: Promise<Client> | undefined;
  const connect = async (): Promise<Client> => {
    const client = new Client({ connectionString: url.href });
    // A server that is stopped under a test takes this connection, too; the next query opens another.
    client.on('error', () => {});
    client.on('end', () => {
      connected = undefined;
    });
    await client.connect();
    return client;
  };
  const client = (): Promise<Client> => {
    connected ??= connect().catch((error: unknown) => {
      connected = undefined;
      throw error;
    });
    return connected;
  };
  await client();
  let last: Promise<unknown> = Promise.resolve();
  const query = <R extends QueryResultRow>(sql: string, values?: unknown[]): Promise<R[]> => {
    const turn = last.then(async () => (await (await client()).query<R>(sql, values)).rows);
    last = turn.catch(() => {});
    return turn;
  };
  return {
    url: url.href,
    query,
    value: async <T>(sql: string, values?: unknown[]) => Object.values((await query(sql, values))[0] ?? {})[0] as T,
    drop: async () => {
      await (await connected)?.end();
      await once(server, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    },
  };
}

export function serverUrl(): string {
  const url = process.env['DATABASE_URL'] ?? process.env['OUTBOX_TEST_SERVER'];
  if (!url)
    throw new Error(
      'no test server: run the tests through Jest, or set DATABASE_URL to a server on which databases may be created',
    );
  return url;
}

/** The run's nats-server, or the one that NATS_URL names; every test names its streams and consumers by itself. */
export function natsUrl(): string {
  const url = process.env['NATS_URL'] ?? process.env['OUTBOX_TEST_NATS'];
  if (!url) throw new Error('no test server: run the tests through Jest within describeWithNats, or set NATS_URL');
  return url;
}

async function once(url: string, sql: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
