import { Client } from 'pg';
import { findNats, installNats, readInfo, startNats, type ThrowawayNats } from 'throwaway-nats';
import { startPostgres, type ThrowawayPostgres } from 'throwaway-postgres';

/** One server of each kind for the whole run, for every project of Jest's. */
export default async function globalSetup(): Promise<void> {
  await Promise.all([postgres(), nats()]);
}

/** Unless DATABASE_URL names one; every test file makes a database of its own on it. */
async function postgres(): Promise<void> {
  if (process.env['DATABASE_URL']) return lookAtRoles(process.env['DATABASE_URL']);
  const server = await startPostgres({ settings: { max_connections: '300', fsync: 'off' } });
  (globalThis as { outboxTestServer?: ThrowawayPostgres }).outboxTestServer = server;
  process.env['OUTBOX_TEST_SERVER'] = server.url;
}

/** Unless NATS_URL names one, or there is none to start: then the tests that need it say so (describeWithNats). */
async function nats(): Promise<void> {
  const binary = findNats() ?? (await installNats().catch(complain));
  // For the tests that start one of their own.
  if (binary) process.env['NATS_SERVER_BIN'] = binary;
  const named = process.env['NATS_URL'];
  if (named) {
    console.log(`nats-server ${(await readInfo(named)).version}, which NATS_URL names`);
  } else if (binary) {
    const server = await startNats({ binary });
    (globalThis as { outboxTestNats?: ThrowawayNats }).outboxTestNats = server;
    process.env['OUTBOX_TEST_NATS'] = server.url;
    console.log(`nats-server ${server.version}, ${binary}`);
  }
}

function complain(error: Error): undefined {
  console.error(`${error.message}: ${String(error.cause)}`);
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
