import { randomBytes } from 'node:crypto';
import { Client } from 'pg';
import { DataSource } from 'typeorm';
import { Outbox1764374400000 } from '../../migrations/1764374400000-outbox.js';
import { DemoTables1764374400001 } from '../../migrations/1764374400001-demo-tables.js';
import { Outbox21764374400002 } from '../../migrations/1764374400002-outbox-2.js';
import { DemoJobs1764374400003 } from '../../migrations/1764374400003-demo-jobs.js';
import { Outbox31764374400004 } from '../../migrations/1764374400004-outbox-3.js';
import { Outbox41764374400005 } from '../../migrations/1764374400005-outbox-4.js';
import { DemoError, wordsOf } from './demo-error.js';

/** Holds what the migrations grant; the roles that log in are members of it. */
const groupRole = 'outbox_demo';
/** Held as long as the demo runs: the workers of a second one would look for this one's files in their own folder. */
const lock = `SELECT pg_try_advisory_lock(hashtext('${groupRole}')) AS free`;

export interface PreparedDatabase {
  /** As an ordinary role of this run's own, under row-level security. */
  readonly appUrl: string;
  /** When it was ready, by the database's clock. */
  readonly since: Date;
  /** Removes that role. */
  discard(): Promise<void>;
}

/** What an administrator does before a deploy: an ordinary role for the app, and the migrations. */
export async function prepareDatabase(adminUrl: string): Promise<PreparedDatabase> {
  const client = await connect(adminUrl);
  const role = `${groupRole}_${randomBytes(4).toString('hex')}`;
  const password = randomBytes(16).toString('hex');
  let since: Date;
  try {
    await becomeTheOnlyOne(client);
    await makeRoles(client, role, password);
    await migrate(adminUrl);
    since = await clockOf(client);
  } catch (error) {
    await client.end();
    throw error instanceof DemoError ? error : unprepared(error);
  }
  const appUrl = new URL(adminUrl);
  appUrl.username = role;
  appUrl.password = password;
  return { appUrl: appUrl.href, since, discard: () => dropRole(client, role) };
}

async function becomeTheOnlyOne(client: Client): Promise<void> {
  const { rows } = await client.query<{ free: boolean }>(lock);
  if (!rows[0]?.free) throw new DemoError('another demo is running on this database');
}

async function clockOf(client: Client): Promise<Date> {
  const { rows } = await client.query<{ now: Date }>('SELECT clock_timestamp() AS now');
  return rows[0]?.now ?? new Date();
}

const insufficientPrivilege = '42501';

function unprepared(error: unknown): DemoError {
  const remedy =
    (error as { code?: unknown }).code === insufficientPrivilege
      ? `; the role in DATABASE_URL must own the database and be allowed to create roles and to grant ${groupRole}`
      : '';
  return new DemoError(`the database could not be prepared: ${wordsOf(error)}${remedy}`, 1, { cause: error });
}

async function connect(url: string): Promise<Client> {
  if (!URL.canParse(url) || !/^postgres(ql)?:$/.test(new URL(url).protocol) || new URL(url).hostname === '')
    throw new DemoError(
      'DATABASE_URL is no URL of a Postgres with a host: postgres://user:password@host:5432/database',
      2,
    );
  const { host, pathname } = new URL(url);
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 10_000 });
  client.on('error', () => {});
  try {
    await client.connect();
    return client;
  } catch (error) {
    await client.end().catch(() => {});
    throw new DemoError(`cannot connect to the database ${host}${pathname}: ${wordsOf(error)}`, 1, { cause: error });
  }
}

async function makeRoles(client: Client, role: string, password: string): Promise<void> {
  // Roles belong to the whole server: another database's demo may have made it, or be making it now.
  await client.query(`DO $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '${groupRole}') THEN CREATE ROLE ${groupRole} NOLOGIN; END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`);
  await client.query(`CREATE ROLE ${role} LOGIN PASSWORD '${password}' IN ROLE ${groupRole}`);
}

async function migrate(url: string): Promise<void> {
  const dataSource = new DataSource({
    type: 'postgres',
    url,
    migrations: [
      Outbox1764374400000,
      DemoTables1764374400001,
      Outbox21764374400002,
      DemoJobs1764374400003,
      Outbox31764374400004,
      Outbox41764374400005,
    ],
    migrationsTableName: 'outbox_demo_migrations',
  });
  await dataSource.initialize();
  try {
    await dataSource.runMigrations();
  } finally {
    await dataSource.destroy();
  }
}

async function dropRole(client: Client, role: string): Promise<void> {
  try {
    await client.query(`DROP ROLE ${role}`);
  } finally {
    await client.end();
  }
}
