import { startPostgres, type ThrowawayPostgres } from 'throwaway-postgres';

/** One server for the whole run, unless DATABASE_URL names one; every test file makes a database of its own on it. */
export default async function globalSetup(): Promise<void> {
  if (process.env['DATABASE_URL']) return;
  const server = await startPostgres({ settings: { max_connections: '300', fsync: 'off' } });
  (globalThis as { outboxTestServer?: ThrowawayPostgres }).outboxTestServer = server;
  process.env['OUTBOX_TEST_SERVER'] = server.url;
}
