import { Client } from 'pg';
import { startPostgres, type ThrowawayPostgres } from 'throwaway-postgres';

/** One server for the whole run, unless DATABASE_URL names one; every test file makes a database of its own on it. */
export default async function globalSetup(): Promise<void> {
  if (process.env['DATABASE_URL']) return lookAtRoles(process.env['DATABASE_URL']);
  const server = await startPostgres({ settings: { max_connections: '300', fsync: 'off' } });
  (globalThis as { outboxTestServer?: ThrowawayPostgres }).outboxTestServer = server;
  process.env['OUTBOX_TEST_SERVER'] = server.url;
}

/** Tests that make roles are skipped on a server that does not let them; the throw-away server lets everything be made. */
async function lookAtRoles(url: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query('SELECT rolname, rolsuper FROM pg_roles WHERE rolname = current_user');
  await client.end();
  if (!rows[0]?.rolsuper)
    process.env['OUTBOX_TEST_NO_ROLES'] =
      `role '${rows[0]?.rolname}' of DATABASE_URL is no superuser, and these tests make roles`;
}
