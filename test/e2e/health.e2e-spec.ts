import { type HealthReport, OutboxHealth, outboxSchema } from 'nestjs-outbox';
import { Client } from 'pg';
import { DataSource } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { ServerProcess } from '../support/server-process.js';
import { nothingIsLeft, useStage } from '../support/stage.js';
import { pretendStandby } from '../support/standby.js';
import { bootApp, type TestApp } from '../support/test-app.js';
import { createDatabase, type TestDatabase } from '../support/test-database.js';
import { createRole, describeWithRoles, type TestRole } from '../support/test-role.js';

const manifest = { emits: ['billing.invoice.paid'] };
const check = (app: TestApp): Promise<HealthReport> => app.app.get(OutboxHealth).check();
/** The problems as `status code`. */
const found = (report: HealthReport): string[] => report.problems.map(({ status, code }) => `${status} ${code}`);

/** What a test that failed left open would hold up the others. */
const sessions: Client[] = [];
const endSessions = async (): Promise<void> => {
  for (const client of sessions.splice(0)) await client.end();
};

/** A session of somebody else's, until it ends or the test does. */
async function session(url: string, name: string, ...sql: string[]): Promise<Client & { pid: number }> {
  const client = new Client({ connectionString: url, application_name: name });
  client.on('error', () => {});
  await client.connect();
  sessions.push(client);
  for (const text of sql) await client.query(text);
  const { rows } = await client.query('SELECT pg_backend_pid() AS pid');
  return Object.assign(client, { pid: rows[0].pid });
}

describe('health', () => {
  const stage = useStage();
  /** A process of the same database role that runs no loops, so that what the tests insert stays. */
  let monitor: TestApp;

  beforeAll(async () => {
    monitor = await stage.boot({ manifest, outbox: { role: 'publisher' } });
  });
  afterEach(async () => {
    await endSessions();
    await stage.database.query(`TRUNCATE outbox.queue, outbox.scheduled, outbox.events, outbox.deliveries, outbox.durables,
      outbox.dead_letters, outbox.job_state RESTART IDENTITY`);
  });

  it('of an outbox in order is green, and says of a worker that it holds its lock', async () => {
    const worker = await stage.boot({ manifest });
    await worker.publisher.publishNow('billing.invoice.paid', {});
    await stage.settled();
    const report = await check(worker);
    expect(report).toMatchObject({
      status: 'green',
      problems: [],
      relay: { waiting: 0, lagMs: null },
      deliveries: { waiting: 0, oldestMs: null, durables: [] },
      deadLetters: { open: 0, oldest: null },
      jobs: { running: [], lostLocks: [], failed: [] },
      worker: { number: expect.any(Number), holdsLock: true },
      vacuum: {},
    });
    expect(await check(monitor)).toMatchObject({ status: 'green', relay: { waiting: 0 }, worker: null });
    // What a controller returns is JSON.
    expect(JSON.parse(JSON.stringify(report)).status).toBe('green');
    await worker.close();
  });

  it('shows how far the relay lags: what is due, and not what is due later', async () => {
    const queue = (ago: string) =>
      stage.database.query(
        `INSERT INTO outbox.queue (event_id, due_at) VALUES (gen_random_uuid(), now() - $1::interval)`,
        [ago],
      );
    await queue('-1 hour');
    await queue('10 seconds');
    const fresh = await check(monitor);
    expect(fresh).toMatchObject({ status: 'green', relay: { waiting: 1 } });
    expect(fresh.relay?.lagMs).toBeGreaterThanOrEqual(10_000);
    expect(fresh.relay?.lagMs).toBeLessThan(20_000);
    await queue('1 minute');
    expect(found(await check(monitor))).toEqual(['yellow relay']);
    await stage.database.query(`INSERT INTO outbox.scheduled (id, due_at, type, payload) VALUES
      (gen_random_uuid(), now() - interval '20 minutes', 'a.b.c', '{}'), (gen_random_uuid(), now() + interval '1 day', 'a.b.c', '{}')`);
    const gone = await check(monitor);
    expect(found(gone)).toEqual(['red relay']);
    expect(gone).toMatchObject({
      status: 'red',
      relay: { waiting: 3 },
      problems: [{ message: expect.stringMatching(/^3 events are due and not relayed, the oldest for 20 min/) }],
    });
  });

  it('shows what waits, durable by durable: retries that are due, rows that must run alone, and nothing that a worker has', async () => {
    await stage.database.query(`INSERT INTO outbox.durables (name, state, seen_at) VALUES ('ledger', 'active', now()), ('mail', 'active', now()),
      ('idle', 'active', now()), ('former', 'retired', now())`);
    await stage.database.query(`INSERT INTO outbox.deliveries (event_id, durable, due_at, attempt, interruptions, lease)
      SELECT gen_random_uuid(), n.id, now() - r.ago, r.attempt, r.interruptions, r.lease FROM (VALUES
        ('ledger', interval '1 minute', 0, 0, NULL::int), ('ledger', interval '2 minutes', 3, 1, NULL), ('ledger', interval '10 hours', 0, 0, 7),
        ('ledger', interval '-1 hour', 5, 0, NULL), ('mail', interval '6 minutes', 0, 4, NULL), ('former', interval '3 hours', 0, 0, NULL)
      ) r(durable, ago, attempt, interruptions, lease) JOIN outbox.durables n ON n.name = r.durable`);
    const report = await check(monitor);
    expect(report.deliveries).toMatchObject({
      waiting: 3,
      durables: [
        { durable: 'mail', waiting: 1 },
        { durable: 'ledger', waiting: 2 },
      ],
    });
    const [mail, ledger] = report.deliveries?.durables ?? [];
    expect(report.deliveries?.oldestMs).toBe(mail?.oldestMs);
    expect(mail?.oldestMs).toBeGreaterThanOrEqual(360_000);
    expect(ledger?.oldestMs).toBeGreaterThanOrEqual(120_000);
    expect(ledger?.oldestMs).toBeLessThan(180_000);
    expect(found(report)).toEqual(['yellow deliveries']);
    expect(report.problems[0]?.message).toMatch(/^durable 'mail': 1 delivery is due/);
    await stage.database.query(`UPDATE outbox.deliveries SET due_at = now() - interval '2 hours' WHERE lease IS NULL
      AND durable = (SELECT id FROM outbox.durables WHERE name = 'ledger')`);
    const late = await check(monitor);
    expect(found(late)).toEqual(['red deliveries', 'yellow deliveries']);
    expect(late.problems[0]?.message).toMatch(/^durable 'ledger': 3 deliveries are due .* for 2 h/);
  });

  it('shows handlers that have failed and not ended, and no attempt that came after the failed one', async () => {
    const { query } = stage.database;
    await monitor.publisher.publishNow('billing.invoice.paid', {});
    await query(`INSERT INTO outbox.durables (name, seen_at) VALUES ('ledger', now()), ('mail', now());
      INSERT INTO outbox.attempts (bucket, event_id, durable, n, error, failed_at)
        SELECT outbox.bucket(e.id), e.id, n.id, 1, 'too late', now() - interval '40 seconds' FROM outbox.events e, outbox.durables n;
      INSERT INTO outbox.workers (app, seen_at, in_flight) SELECT 'host:1', now(), jsonb_build_object('running', 2, 'deliveries',
        jsonb_build_array(jsonb_build_array(id, 1, 50000), jsonb_build_array(id, 2, 30000))) FROM outbox.events`);
    try {
      const report = await check(monitor);
      expect(report.overruns).toEqual([
        { durable: 'ledger', handlers: 1, longestMs: expect.any(Number), apps: 'host:1' },
      ]);
      expect(found(report)).toEqual(['yellow handler-hung']);
    } finally {
      await query('TRUNCATE outbox.attempts, outbox.workers');
    }
  });

  it('counts open dead letters, and neither retried nor resolved ones', async () => {
    await stage.database.query(`INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at, dead_at, resolved_at)
      VALUES (gen_random_uuid(), 'ledger', 'a.b.c', '{}', now(), '2026-01-01Z', now()), (gen_random_uuid(), 'ledger', 'a.b.c', '{}', now(), '2026-01-03Z', NULL),
             (gen_random_uuid(), 'mail', 'a.b.c', '{}', now(), '2026-01-02Z', NULL)`);
    const report = await check(monitor);
    expect(report).toMatchObject({
      status: 'yellow',
      deadLetters: { open: 2, oldest: new Date('2026-01-02Z') },
      problems: [{ code: 'dead-letters', message: expect.stringContaining('2 dead letters are open') }],
    });
  });

  describe('of periodic jobs', () => {
    const job = (name: string, columns: Record<string, string>) =>
      stage.database.query(
        `INSERT INTO outbox.job_state (job, schedule, ${Object.keys(columns).join(', ')}) VALUES ($1, '* * * * *', ${Object.values(columns).join(', ')})`,
        [name],
      );
    const ago = (interval: string): string => `now() - interval '${interval}'`;

    it('shows those that run, for how long and where, and that one with time left is in order', async () => {
      await stage.database.query(
        `INSERT INTO outbox.workers (id, app) OVERRIDING SYSTEM VALUE VALUES (900001, 'host-a:41')`,
      );
      await job('billing.renew', {
        ...{ running_slot: `'2026-01-02T03:00:00Z'`, attempt: '2', worker: '900001', started_at: ago('10 minutes') },
        ...{ deadline: ago('-1 minute'), next_slot: ago('-1 hour'), finished_at: ago('1 day'), outcome: `'done'` },
      });
      await job('audit.idle', { finished_at: ago('1 minute'), outcome: `'done'`, next_slot: ago('1 minute') });
      await job('audit.retry', {
        ...{
          running_slot: ago('1 hour'),
          started_at: ago('1 hour'),
          outcome: `'failed'`,
        },
        ...{ retry_at: ago('-1 minute'), deadline: ago('50 minutes'), next_slot: ago('1 minute') },
      });
      const report = await check(monitor);
      expect(report.problems).toEqual([]);
      expect(report.jobs).toEqual({
        running: [
          {
            ...{ job: 'billing.renew', slot: new Date('2026-01-02T03:00:00Z'), attempt: 2 },
            ...{
              forMs: expect.any(Number),
              worker: 900001,
              app: 'host-a:41',
              pastTimeoutMs: null,
              pastNextSlotMs: null,
            },
          },
        ],
        lostLocks: [],
        failed: [],
      });
      expect(report.jobs?.running[0]?.forMs).toBeGreaterThanOrEqual(600_000);
      await stage.database.query('DELETE FROM outbox.workers WHERE id = 900001');
    });

    it('is red past a job’s timeout, and yellow past its next slot', async () => {
      await job('slow', { running_slot: ago('1 hour'), started_at: ago('1 hour'), next_slot: ago('20 minutes') });
      await job('hung', {
        ...{ running_slot: ago('2 hours'), started_at: ago('2 hours'), worker: '900002' },
        ...{ deadline: ago('90 minutes'), next_slot: ago('60 minutes') },
      });
      const report = await check(monitor);
      expect(found(report)).toEqual(['red job-hung', 'yellow job-late']);
      expect(report.problems.map(({ message }) => message)).toEqual([
        expect.stringMatching(/^job 'hung' .* for 2 h on worker 900002, .* 90 min past its timeout/),
        expect.stringMatching(/^job 'slow' .* for 60 min on .*, 20 min past its next slot/),
      ]);
      expect(report.jobs?.running.map((run) => run.job)).toEqual(['hung', 'slow']);
      expect(report.jobs?.running[0]?.pastTimeoutMs).toBeGreaterThanOrEqual(5_400_000);
    });

    it('is yellow for a lock that was lost within the hour, whether its slot is taken up again or not', async () => {
      const lost = (when: string) => ({ finished_at: ago(when), outcome: `'lock lost'` });
      await job('lost', { ...lost('10 minutes') });
      await job('lost-and-open', {
        ...lost('20 minutes'),
        ...{ running_slot: ago('30 minutes'), started_at: ago('30 minutes'), next_slot: ago('1 minute') },
      });
      await job('lost-and-again', {
        ...lost('20 minutes'),
        ...{ running_slot: ago('30 minutes'), started_at: ago('5 minutes'), next_slot: ago('-1 minute') },
      });
      await job('lost-yesterday', { ...lost('1 day') });
      const report = await check(monitor);
      expect(found(report)).toEqual(['yellow job-lock-lost', 'yellow job-lock-lost', 'yellow job-lock-lost']);
      expect(report.jobs?.lostLocks.map((lock) => lock.job).sort()).toEqual([
        'lost',
        'lost-and-again',
        'lost-and-open',
      ]);
      expect(report.jobs?.running.map((run) => run.job)).toEqual(['lost-and-again']);
    });
  });

  it('names the session whose transaction holds vacuum back, and how long it has', async () => {
    const query = 'SELECT count(*) FROM outbox.events';
    const holder = await session(stage.database.url, 'nightly report', 'BEGIN ISOLATION LEVEL REPEATABLE READ', query);
    const later = await session(stage.database.url, 'later', 'BEGIN ISOLATION LEVEL REPEATABLE READ', query);
    const { vacuum, status } = await check(monitor);
    expect(vacuum).toEqual({
      holder: {
        ...{ kind: 'session', pid: holder.pid, applicationName: 'nightly report', state: 'idle in transaction' },
        ...{ user: expect.any(String), name: null, transactions: expect.any(Number), forMs: expect.any(Number) },
      },
    });
    // A moment is no problem.
    expect(status).toBe('green');
    await holder.end();
    await eventually('the next one is named', async () => {
      return (await check(monitor)).vacuum?.holder?.pid === later.pid;
    });
    await later.end();
  });

  it('names the transaction itself, and none of those whose snapshots are as old because of it', async () => {
    // The reader's transaction is the older one by the clock, and its snapshot shows the writer's as running.
    const reader = await session(stage.database.url, 'reader', 'BEGIN ISOLATION LEVEL REPEATABLE READ');
    const writer = await session(stage.database.url, 'writer', 'BEGIN', 'SELECT pg_current_xact_id()');
    await reader.query('SELECT 1 FROM outbox.events');
    await stage.database.query('SELECT pg_current_xact_id()');
    // A transaction of another database may be in the reader's snapshot, and then that is the older one.
    const alone = await stage.database.value<boolean>(
      'SELECT (SELECT backend_xmin FROM pg_stat_activity WHERE pid = $1)::text = (SELECT backend_xid FROM pg_stat_activity WHERE pid = $2)::text',
      [reader.pid, writer.pid],
    );
    expect((await check(monitor)).vacuum?.holder?.pid).toBe(alone ? writer.pid : reader.pid);
    await writer.end();
    await eventually('the reader is left', async () => (await check(monitor)).vacuum?.holder?.pid === reader.pid);
    await reader.end();
  });

  it('names neither sessions of other databases nor a running VACUUM', async () => {
    const other = await createDatabase();
    const elsewhere = await session(other.url, 'elsewhere', 'BEGIN', 'SELECT pg_current_xact_id()');
    await stage.database.query('CREATE TABLE big AS SELECT n FROM generate_series(1, 50000) n');
    await stage.database.query('DELETE FROM big');
    const cleaner = await session(
      stage.database.url,
      'cleaner',
      'SET vacuum_cost_delay = 50',
      'SET vacuum_cost_limit = 1',
    );
    const vacuum = cleaner.query('VACUUM big').catch(() => {});
    await eventually('it is under way and has a snapshot', () =>
      stage.database.value<boolean>(
        `SELECT EXISTS (SELECT 1 FROM pg_stat_progress_vacuum v JOIN pg_stat_activity a USING (pid) WHERE v.pid = $1 AND a.backend_xmin IS NOT NULL)`,
        [cleaner.pid],
      ),
    );
    const named = (await check(monitor)).vacuum?.holder?.applicationName;
    expect(named).not.toBe('cleaner');
    expect(named).not.toBe('elsewhere');
    await stage.database.query('SELECT pg_cancel_backend($1)', [cleaner.pid]);
    await vacuum;
    await cleaner.end();
    await elsewhere.end();
    await other.drop();
  });

  it('has its other figures when tables are locked, and says what holds them up', async () => {
    const lock = (...tables: string[]) =>
      session(
        stage.database.url,
        'migration',
        'BEGIN',
        `LOCK TABLE ${tables.map((table) => `outbox.${table}`).join(', ')} IN ACCESS EXCLUSIVE MODE`,
        'SELECT pg_current_xact_id()',
      );
    const one = await lock('dead_letters');
    expect(await check(monitor)).toMatchObject({
      status: 'red',
      problems: [{ code: 'unreadable', message: expect.stringMatching(/^no figures of deadLetters: .*timeout/) }],
      deadLetters: null,
      relay: { waiting: 0 },
      jobs: { running: [] },
      vacuum: { holder: { pid: one.pid } },
    });
    await one.end();
    expect(await check(monitor)).toMatchObject({ status: 'green', deadLetters: { open: 0 } });
    const all = await lock('queue', 'deliveries', 'dead_letters', 'job_state');
    const report = await check(monitor);
    expect(found(report)).toEqual(Array.from({ length: 4 }, () => 'red unreadable'));
    expect(report.vacuum?.holder?.pid).toBe(all.pid);
    await all.end();
  });

  it('is red while a worker has lost its number, and green when it has another', async () => {
    const worker = await stage.boot({ manifest });
    const before = (await check(worker)).worker?.number;
    // Nobody can enrol while this is held.
    const lock = await session(stage.database.url, 'lock', 'BEGIN', 'LOCK TABLE outbox.workers IN SHARE MODE');
    await stage.database.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nestjs-outbox worker lock'`,
    );
    const report = await eventually('it is without a number', async () => {
      const given = await check(worker);
      return given.problems.some(({ code }) => code === 'worker') && given;
    });
    expect(report).toMatchObject({ status: 'red', worker: { number: null, holdsLock: false } });
    await lock.end();
    await eventually('it has another', async () => {
      const { status, worker: now } = await check(worker);
      return status === 'green' && now?.holdsLock === true && now.number !== before;
    });
    await worker.close();
  });

  it('of a publisher opens one connection when it is asked, and none after the app was closed', async () => {
    const publisher = await stage.boot({
      manifest,
      outbox: { role: 'publisher' },
      typeorm: { applicationName: 'api' },
    });
    const open = () =>
      stage.database.value<number>(
        `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nestjs-outbox publisher'`,
      );
    // The monitor's own.
    const before = await open();
    await Promise.all([check(publisher), check(publisher), check(publisher)]);
    expect(await open()).toBe(before + 1);
    await publisher.close();
    await eventually('it is gone', async () => (await open()) === before);
    expect(await check(publisher)).toMatchObject({ status: 'red', problems: [{ code: 'database' }] });
    expect(await open()).toBe(before);
  });

  it('knows a schema of another name', async () => {
    const other = await stage.boot({
      manifest,
      outbox: { role: 'publisher', schema: { name: 'second', onStart: 'migrate' } },
    });
    await stage.database.query(
      `INSERT INTO second.queue (event_id, due_at) VALUES (gen_random_uuid(), now() - interval '1 minute')`,
    );
    expect(found(await check(other))).toEqual(['yellow relay']);
    expect(found(await check(monitor))).toEqual([]);
    await other.close();
    await stage.database.query('DROP SCHEMA second CASCADE');
  });
});

describeWithRoles('health, for roles that own nothing', () => {
  const stage = useStage();
  const roles: TestRole[] = [];

  beforeAll(async () => {
    const owner = await new DataSource({ type: 'postgres', url: stage.database.url }).initialize();
    await outboxSchema.up(owner);
    await owner.destroy();
  });
  afterEach(endSessions);
  // Runs after the stage's own hook: with the database their grants are gone.
  afterAll(async () => {
    for (const role of roles) await role.drop();
  });

  async function as(...actors: ('publisher' | 'worker' | 'operator')[]): Promise<{ app: TestApp; name: string }> {
    const role = await createRole(actors.join('_'));
    roles.push(role);
    for (const actor of actors)
      for (const sql of outboxSchema.grants({ [actor]: role.name })) await stage.database.query(sql);
    const app = await stage.boot({
      url: role.urlOf(stage.database),
      manifest,
      outbox: { role: actors.includes('worker') ? 'worker' : 'publisher', schema: { onStart: 'verify' } },
    });
    return { app, name: role.name };
  }

  it('a publisher learns that the database answers and who holds vacuum, and is not blamed for the rest', async () => {
    const { app, name } = await as('publisher');
    const failed = () =>
      stage.database.value<number>(
        `SELECT xact_rollback::int FROM pg_stat_database WHERE datname = current_database()`,
      );
    await stage.database.query(
      `INSERT INTO outbox.queue (event_id, due_at) VALUES (gen_random_uuid(), now() - interval '1 hour')`,
    );
    const before = await failed();
    expect(await check(app)).toMatchObject({
      status: 'green',
      problems: [],
      ...{ relay: null, deliveries: null, deadLetters: null, jobs: null, worker: null },
      vacuum: {},
    });
    // Its sessions' end makes the server count what they did: nothing was tried that failed.
    await app.close();
    await eventually('its sessions are gone', () =>
      stage.database.value<boolean>('SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = $1', [name]),
    );
    expect(await failed()).toBe(before);
  });

  it('a publisher that may read everything reports everything', async () => {
    const { app } = await as('publisher', 'operator');
    expect(await check(app)).toMatchObject({ status: 'red', relay: { waiting: 1 }, worker: null });
    await app.close();
  });

  it('a worker reports everything, and what it may not read any more with the remedy', async () => {
    const { app, name } = await as('worker');
    await stage.settled();
    expect(await check(app)).toMatchObject({
      status: 'green',
      ...{ relay: { waiting: 0 }, deliveries: { waiting: 0 }, deadLetters: { open: 0 }, jobs: { running: [] } },
      worker: { holdsLock: true },
    });
    await stage.database.query(`REVOKE SELECT ON outbox.dead_letters, outbox.job_state FROM ${name}`);
    const report = await check(app);
    expect(report).toMatchObject({ status: 'red', deadLetters: null, jobs: null, relay: { waiting: 0 } });
    expect(report.problems.map(({ code, message }) => [code, message])).toEqual(
      ['outbox.dead_letters', 'outbox.job_state'].map((table) => [
        'unreadable',
        expect.stringMatching(
          new RegExp(`lacks SELECT on ${table},.*outboxSchema\\.grants\\(\\{ worker: '${name}' \\}\\)`),
        ),
      ]),
    );
    await app.close();
  });

  it('names a session whose time is hidden, and judges it by the transactions since; pg_read_all_stats shows the time', async () => {
    const { app, name } = await as('worker');
    const holder = await session(stage.database.url, 'hidden', 'BEGIN', 'SELECT pg_current_xact_id()');
    const seen = async () => (await check(app)).vacuum?.holder;
    expect(await seen()).toMatchObject({ pid: holder.pid, applicationName: 'hidden', state: null, forMs: null });
    expect((await check(app)).status).toBe('green');
    await stage.database.query(
      'DO $$ BEGIN FOR i IN 1..300001 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$',
    );
    const report = await check(app);
    expect(found(report)).toEqual(['yellow vacuum']);
    expect(report.problems[0]?.message).toMatch(
      new RegExp(`^session ${holder.pid} \\('hidden', role .*hidden from this role`),
    );
    await stage.database.query(`GRANT pg_read_all_stats TO ${name}`);
    expect(await seen()).toMatchObject({ pid: holder.pid, state: 'idle in transaction', forMs: expect.any(Number) });
    // A moment in time, whatever else happened meanwhile.
    expect((await check(app)).status).toBe('green');
    await holder.end();
    await app.close();
  });
});

describe('health, of a server', () => {
  let server: ServerProcess;
  let database: TestDatabase;
  let worker: TestApp;
  let publisher: TestApp;

  beforeAll(async () => {
    server = await ServerProcess.start();
    database = await createDatabase(server.url);
    worker = await bootApp({ url: database.url, manifest });
    publisher = await bootApp({ url: database.url, manifest, outbox: { role: 'publisher' } });
  });
  afterAll(async () => {
    await worker?.close();
    await publisher?.close();
    if (database) {
      await nothingIsLeft(database);
      await database.drop();
    }
    await server?.stop();
  });

  const xmin = () => database.value<number>('SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int');
  const heldBy = (holder: object) =>
    eventually('it is named', async () => {
      const given = (await check(publisher)).vacuum?.holder;
      expect(given).toMatchObject(holder);
      return true;
    });

  it('names a prepared transaction that nobody ends', async () => {
    await database.query('CREATE TABLE things (n int)');
    const client = await session(database.url, 'two-phase', 'BEGIN', 'INSERT INTO things VALUES (1)');
    await client.query(`PREPARE TRANSACTION 'forgotten'`);
    await client.end();
    const own = { user: 'postgres', pid: null, state: null, forMs: expect.any(Number) };
    await heldBy({ kind: 'prepared transaction', name: 'forgotten', ...own });
    await database.query(`ROLLBACK PREPARED 'forgotten'`);
  });

  it('names a standby with a long query, and the slot of one', async () => {
    const leave = await pretendStandby(database.url, 'replica-1', await xmin());
    await database.query('INSERT INTO things VALUES (1)');
    await heldBy({ kind: 'standby', applicationName: 'replica-1', name: null, forMs: null });
    leave();
    await database.query(`SELECT pg_create_physical_replication_slot('replica_2')`);
    const leaveSlot = await pretendStandby(database.url, 'replica-2', await xmin(), 'replica_2');
    await database.query('INSERT INTO things VALUES (1)');
    await heldBy({ kind: 'replication slot', name: 'replica_2', pid: expect.any(Number) });
    // Gone without leaving its slot.
    leaveSlot();
    await heldBy({ kind: 'replication slot', name: 'replica_2', pid: null, forMs: null });
    await database.query(`SELECT pg_drop_replication_slot('replica_2')`);
  });

  it('is red while it is stopped, within its five seconds, and green again when it is back', async () => {
    expect(found(await check(worker))).toEqual([]);
    await server.pause();
    for (const app of [worker, publisher]) {
      const begin = performance.now();
      const reports = await Promise.all([check(app), check(app)]);
      // A busy machine takes a moment more.
      expect(performance.now() - begin).toBeLessThan(9_000);
      for (const report of reports)
        expect(report).toMatchObject({
          status: 'red',
          problems: [
            { code: 'database', message: expect.stringMatching(/^the database gave no figures: \S.*; see whether/) },
          ],
          relay: null,
        });
    }
    await server.resume();
    for (const app of [worker, publisher])
      await eventually('it is green', async () => (await check(app)).status === 'green', 30_000);
  });
});
