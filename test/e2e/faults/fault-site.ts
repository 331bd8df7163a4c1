import { Client } from 'pg';
import { eventually, reaches } from '../../support/eventually.js';
import { bootApp, type TestApp, type TestAppOptions } from '../../support/test-app.js';
import { createDatabase, type TestDatabase } from '../../support/test-database.js';
import type { Task } from '../../support/worker-main.js';
import { WorkerProcess } from '../../support/worker-process.js';

/**
 * A database with an app that only publishes, in which worker processes are killed. Nothing in its tables is unique, so
 * that whatever is done twice is seen twice:
 *
 * - `effects`: what handlers wrote in their own transaction;
 * - `runs`: which runs began, written beside it, so that it survives the process;
 * - `charges`: every interruption that the library charged.
 */
export class FaultSite {
  private readonly workers: WorkerProcess[] = [];
  private readonly apps: TestApp[] = [];

  private constructor(
    readonly database: TestDatabase,
    readonly publisher: TestApp,
  ) {}

  static async open(server?: string): Promise<FaultSite> {
    const database = await createDatabase(server);
    await database.query(tables);
    const publisher = await bootApp({
      url: database.url,
      outbox: { role: 'publisher' },
      manifest: { emits: ['test.work.asked'] },
    });
    await database.query(chargesTrigger);
    return new FaultSite(database, publisher);
  }

  async worker(env: Readonly<Record<string, string>> = {}): Promise<WorkerProcess> {
    const worker = this.launch(env);
    await worker.ready();
    return worker;
  }

  /** A worker process that is not waited for. */
  launch(env: Readonly<Record<string, string>> = {}): WorkerProcess {
    const worker = WorkerProcess.launch(this.database.url, env);
    this.workers.push(worker);
    return worker;
  }

  /** An app in the test's own process; closed with the site when the test has not done so. */
  async app(options: Omit<TestAppOptions, 'url'>): Promise<TestApp> {
    const app = await bootApp({ url: this.database.url, manifest: { emits: ['test.work.asked'] }, ...options });
    this.apps.push(app);
    return app;
  }

  /** Publishes one event for each task, all in one transaction. */
  async ask(...tasks: Task[]): Promise<string[]> {
    const { dataSource, publisher } = this.publisher;
    const published = await dataSource.transaction(() =>
      publisher.publishMany(tasks.map((payload) => ({ event: 'test.work.asked', payload }))),
    );
    return published.map(({ id }) => id);
  }

  async askOne(task: Task): Promise<string> {
    const [id = ''] = await this.ask(task);
    return id;
  }

  /** Waits until all are handled, and checks that each is so once: one mark, one effect. */
  async handledOnce(ids: readonly string[]): Promise<void> {
    const { database } = this;
    await reaches('events that are handled', ids.length, () =>
      database.value<number>(
        `SELECT count(*)::int FROM outbox.handled WHERE event_id = ANY ($1::uuid[]) AND verdict = 'd'`,
        [ids],
      ),
    );
    expect(
      await database.query(
        `SELECT a.id, count(e.event_id)::int AS effects FROM unnest($1::uuid[]) a(id)
         LEFT JOIN effects e ON e.event_id = a.id GROUP BY a.id HAVING count(e.event_id) <> 1`,
        [ids],
      ),
    ).toEqual([]);
  }

  /** How many interruptions were charged, per event; an event without one is not listed. */
  async interruptions(): Promise<Record<string, number>> {
    const rows = await this.database.query<{ event_id: string; n: number }>(
      'SELECT event_id, sum(n)::int AS n FROM charges GROUP BY event_id',
    );
    return Object.fromEntries(rows.map((row) => [row.event_id, row.n]));
  }

  /** How many times the handler began, per event. */
  async runs(): Promise<Record<string, number>> {
    const rows = await this.database.query<{ event_id: string; n: number }>(
      'SELECT event_id, count(*)::int AS n FROM runs GROUP BY event_id',
    );
    return Object.fromEntries(rows.map((row) => [row.event_id, row.n]));
  }

  attemptsCharged(): Promise<number> {
    return this.database.value('SELECT count(*)::int FROM outbox.attempts');
  }

  /** Ends everything, then looks at what is left behind: no work, no lock, no session. */
  async close(): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.kill()));
    await Promise.all([this.publisher, ...this.apps].map((app) => app.close()));
    try {
      await nothingLeft(this.database);
    } finally {
      await this.database.drop();
    }
  }
}

/** No delivery waits or is leased, and no session of the database but the test's own lives or holds anything. */
export async function nothingLeft(database: TestDatabase): Promise<void> {
  expect(await database.query('SELECT * FROM outbox.queue')).toEqual([]);
  expect(await database.query('SELECT * FROM outbox.deliveries')).toEqual([]);
  await eventually('no session is left', async () => (await sessions(database)).length === 0).catch(async () =>
    expect(await sessions(database)).toEqual([]),
  );
  expect(
    await database.query(
      `SELECT l.classid, l.objid, l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
       WHERE l.locktype = 'advisory' AND d.datname = current_database()`,
    ),
  ).toEqual([]);
}

function sessions(database: TestDatabase) {
  return database.query(
    `SELECT pid, application_name, state, left(query, 200) AS query FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`,
  );
}

const tables = `
CREATE TABLE effects (event_id uuid, durable text, attempt int, pid int, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE runs (event_id uuid, attempt int, pid int, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE charges (event_id uuid, n int, total int)`;

const chargesTrigger = `
CREATE FUNCTION charge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO charges VALUES (new.event_id, new.interruptions - old.interruptions, new.interruptions); RETURN NULL; END $$;
CREATE TRIGGER charge AFTER UPDATE OF interruptions ON outbox.deliveries FOR EACH ROW
  WHEN (new.interruptions IS DISTINCT FROM old.interruptions) EXECUTE FUNCTION charge()`;

/** A session that holds a table until `release`, so that others can be met while they wait for it. */
export async function holdTable(database: TestDatabase, table: string): Promise<{ release(): Promise<void> }> {
  const client = new Client({ connectionString: database.url, application_name: 'holder' });
  await client.connect();
  await client.query(`BEGIN; LOCK TABLE ${table} IN EXCLUSIVE MODE`);
  return {
    release: async () => {
      await client.query('COMMIT');
      await client.end();
    },
  };
}

/** The backends of `application_name` that match `where`, once there is one. */
export function backends(database: TestDatabase, application: string, where = 'true'): Promise<number[]> {
  return eventually(`a session of '${application}' with ${where}`, async () => {
    const rows = await database.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND ${where}`,
      [application],
    );
    if (rows.length === 0) throw new Error('there is none');
    return rows.map((row) => row.pid);
  });
}
