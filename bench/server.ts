import { randomBytes } from 'node:crypto';
import { Client } from 'pg';
import { startPostgres } from 'throwaway-postgres';

/** A server to measure on: the one of DATABASE_URL, or a throw-away one with stock settings (fsync on). */
export interface BenchServer {
  readonly url: string;
  readonly throwaway: boolean;
  stop(): Promise<void>;
}

export async function openServer(settings: Readonly<Record<string, string>> = {}): Promise<BenchServer> {
  const url = process.env['DATABASE_URL'];
  if (url) return { url, throwaway: false, stop: async () => {} };
  const server = await startPostgres({ settings });
  return { url: server.url, throwaway: true, stop: () => server.stop() };
}

/** Runs `work` on a database of its own, which is dropped afterwards; nothing measured earlier has left rows in it. */
export async function withDatabase<T>(server: BenchServer, work: (url: string) => Promise<T>): Promise<T> {
  const name = `outbox_bench_${randomBytes(6).toString('hex')}`;
  await withClient(server.url, (client) => client.query(`CREATE DATABASE ${name}`));
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  try {
    await withClient(url.href, (client) => client.query(tablesSql));
    return await work(url.href);
  } finally {
    await withClient(server.url, (client) => client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`));
  }
}

export async function withClient<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/**
 * The application's own tables, and what a hand-written outbox has: one table of events and one of marks. The hand-written
 * ones stand where they are smallest: no partitions, no second index.
 */
const tablesSql = `
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL);
CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL);
CREATE TABLE plain_outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), type text NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE plain_marks (event_id uuid NOT NULL, durable text NOT NULL, PRIMARY KEY (event_id, durable))`;
