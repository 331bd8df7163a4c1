import { Client } from 'pg';
import { DataSource } from 'typeorm';
import { eventually } from '../../../../test/support/eventually.js';
import { Past } from '../../../../test/support/past.js';
import { CapturedLog } from '../../../../test/support/test-app.js';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import { Database } from '../tables/database.js';
import { outboxSchema } from '../tables/schema/outbox-schema.js';
import { bucketOf, dayOf } from '../tables/schema/schema-versions.js';
import type { Bound } from '../tables/wire/statement.js';
import { Purge, type PurgeReport } from './purge.js';
import { type PurgeLimits, purgeLimits } from './purge-limits.js';

const week = 7 * 86_400_000;
const nothing: PurgeReport = {
  ...{ days: 0, kept: 0, marks: 0, left: 0 },
  ...{ uniqueKeys: 0, deadLetters: 0, jobRuns: 0, jobStates: 0 },
};
const [ledger, mail] = [1, 2];

describe('retention', () => {
  let database: TestDatabase;
  let source: DataSource;
  let past: Past;
  let log: CapturedLog;
  const clients: Client[] = [];

  beforeEach(async () => {
    database = await createDatabase();
    source = await new DataSource({ type: 'postgres', url: database.url }).initialize();
    await outboxSchema.up(source);
    past = new Past(database);
    log = new CapturedLog();
  });

  afterEach(async () => {
    for (const client of clients.splice(0)) await client.end();
    await eventually('no connection of a pass is left', async () => (await purging()).length === 0);
    await source.destroy();
    await database.drop();
  });

  const quick = { ...purgeLimits, pauseMs: [1, 5] as const };
  function purge(limits: Partial<PurgeLimits> = {}, signal?: AbortSignal, retentionMs = week): Promise<PurgeReport> {
    const pass = new Purge(new Database(source, 'outbox'), { retentionMs }, log, { ...quick, ...limits });
    return pass.run(signal ?? new AbortController().signal);
  }
  /** A session of the test's own, in which locks can be held. */
  async function session(): Promise<Client> {
    const client = new Client({ connectionString: database.url });
    await client.connect();
    clients.push(client);
    return client;
  }
  const purging = () =>
    database.query<{ pid: number; waits: boolean }>(
      `SELECT pid, wait_event_type IS NOT DISTINCT FROM 'Lock' AS waits FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = 'nestjs-outbox purge'`,
    );
  /** A pass waits for the lock of `table`; resolves to its backend. */
  const waitingFor = (table: string) =>
    eventually(`a pass waits for ${table}`, () =>
      database.value<number | undefined>(
        `SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
         WHERE l.relation = $1::regclass AND NOT l.granted AND a.application_name = 'nestjs-outbox purge'`,
        [`outbox.${table}`],
      ),
    );
  /** Makes a pass wait for its locks as long as a test needs, in place of 150 ms at a time. */
  const patient = async (name: 'forget_events' | 'forget_marks') => {
    await database.query(`ALTER FUNCTION outbox.${name} SET lock_timeout = '30s'`);
  };
  const claim = (client: Client, id: string, durable: number, lease: number) =>
    client
      .query(`SELECT * FROM outbox.claim_${bucketOf(id)}($1, $2, $3)`, [id, durable, lease])
      .then(({ rows }) => rows[0]);

  describe('a day that is older than the window', () => {
    it('goes by TRUNCATE, with its marks and attempts; no other day is touched', async () => {
      const old = await past.events(9, 50);
      await past.marked(old, ledger);
      await past.marked(old.slice(0, 10), mail, 'x');
      await past.failed(old, ledger);
      const young = await past.events(3, 5);
      await past.marked(young, ledger);
      await past.failed(young, ledger);
      const [files, rows] = [await past.files(), await past.all(young)];
      expect(await purge()).toEqual({ ...nothing, days: 1, marks: 1 });
      expect(await past.all(old)).toEqual([]);
      expect(await past.all(young)).toEqual(rows);
      const after = await past.files();
      const changed = Object.keys(files).filter((name) => files[name] !== after[name]);
      const bucket = bucketOf(old[0] ?? '');
      expect(changed.sort()).toEqual([`attempts_${bucket}`, `events_${bucket}`, `handled_${bucket}`]);
      for (const name of changed)
        expect(await database.value(`SELECT pg_relation_size('outbox.${name}')::int`)).toBe(0);
      expect(log.lines).toEqual([`log outbox.purge forgot the events of ${dayOf(old[0] ?? '')}`]);
    });

    it('is whole: what is younger than the window, by a day at most, stays', async () => {
      const [eight, seven, six] = [await past.events(8), await past.events(7), await past.events(6)];
      await purge();
      expect([await past.left(eight), await past.left(seven), await past.left(six)]).toEqual([[], seven, six]);
      const [two, one, today] = [await past.events(2), await past.events(1), await past.events(0)];
      await purge({}, undefined, 86_400_000);
      expect([await past.left(two), await past.left(one), await past.left(today)]).toEqual([[], one, today]);
    });

    it('is left alone once it is forgotten: the next pass takes no lock', async () => {
      const old = await past.events(9, 3);
      await past.marked(old, ledger);
      await past.waiting(old.slice(0, 1), mail);
      expect(await purge()).toEqual({ ...nothing, days: 1, kept: 1, marks: 1 });
      const files = await past.files();
      expect(await purge()).toEqual(nothing);
      expect(await past.files()).toEqual(files);
    });

    it('and when its bucket has a newer day already, that one stays as it is', async () => {
      const old = await past.events(9, 20);
      const newer = await past.events(-1, 20);
      expect(bucketOf(newer[0] ?? '')).toBe(bucketOf(old[0] ?? ''));
      await past.marked([...old, ...newer], ledger);
      await past.failed([...old, ...newer], ledger);
      await past.queued(newer.slice(0, 5), "clock_timestamp() + interval '1 day'");
      const rows = await past.all(newer);
      expect(await purge()).toEqual({ ...nothing, days: 1, kept: 20, marks: 1 });
      expect(await past.all(newer)).toEqual(rows);
      expect(await past.all(old)).toEqual([]);
    });
  });

  describe('what is not finished survives, with payload, marks and attempts, and the rest of its day goes', () => {
    /** Purges the day of `survivors` and of as many finished events beside them. */
    async function survive(survivors: readonly string[]): Promise<void> {
      const finished = await past.events(9, 20);
      await past.marked(finished, ledger);
      await past.failed(finished, ledger);
      const rows = await past.all(survivors);
      expect(await purge()).toMatchObject({ days: 1, kept: survivors.length, marks: 1 });
      expect(await past.all(survivors)).toEqual(rows);
      expect(await past.all(finished)).toEqual([]);
    }

    it('what is queued, due or not', async () => {
      const ids = await past.events(9, 6);
      await past.queued(ids.slice(0, 3));
      await past.queued(ids.slice(3), "clock_timestamp() + interval '3 days'");
      await survive(ids);
    });

    it('what waits for a durable, on its ladder, leased, or of one that nobody serves', async () => {
      const ids = await past.events(9, 9);
      await past.waiting(ids.slice(0, 3), mail);
      await past.waiting(ids.slice(3, 6), mail, { due: "clock_timestamp() + interval '6 hours'" });
      await past.waiting(ids.slice(6), 99, { lease: 7 });
      await past.marked(ids, ledger);
      await past.failed(ids, ledger);
      await past.failed(ids, mail);
      await survive(ids);
    });

    it('what is still to be back-filled: of the types that wait, behind where the back-fill stands', async () => {
      const before = await past.events(9, 3, 'crm.my_contact.merged');
      const ids = await past.events(9, 3, 'crm.my_contact.merged');
      // A letter in place of the underscore, a type that has ended, one that is filled in, one of a durable that is gone.
      const others = [
        ...(await past.events(9, 3, 'crm.my-contact.merged')),
        ...(await past.events(9, 3, 'crm.ended.merged')),
        ...(await past.events(9, 3, 'crm.filled.merged')),
        ...(await past.events(9, 3, 'crm.retired.merged')),
      ];
      await database.query(
        `INSERT INTO outbox.durables (name, state) VALUES ('ledger', 'active'), ('mail', 'active'), ('gone', 'retired')`,
      );
      await database.query(
        `INSERT INTO outbox.durable_types (durable, pattern, matcher, since, ended_at, backfill_to) VALUES
         (1, 'crm.my_contact.*', 'crm.my\\_contact.%', '-infinity', NULL, $1), (1, 'crm.ended.*', 'crm.ended.%', '-infinity', now(), $1),
         (3, 'crm.retired.*', 'crm.retired.%', '-infinity', NULL, $1),
         (1, 'crm.filled.*', 'crm.filled.%', '-infinity', NULL, NULL), (2, 'a.b.c', 'a.b.c', '-infinity', NULL, '00000000-0000-0000-0000-000000000000')`,
        [before.at(-1)],
      );
      await past.marked(ids.slice(0, 1), ledger);
      await survive(ids);
      expect(await past.left([...before, ...others])).toEqual([]);
    });
  });

  describe('a day of which too much would have to be set aside', () => {
    const limits = { setAside: 10, few: 5 };

    it('stays, and is named in one warning with the number', async () => {
      const ids = await past.events(9, 20);
      await past.waiting(ids.slice(0, 11), mail);
      await past.marked(ids, ledger);
      const rows = await past.all(ids);
      expect(await purge(limits)).toEqual({ ...nothing, left: 1 });
      expect(await past.all(ids)).toEqual(rows);
      expect(log.lines).toEqual([
        expect.stringMatching(
          new RegExp(
            `^warn outbox.purge leaves ${dayOf(ids[0] ?? '')} alone: more than 10 of its events are not finished`,
          ),
        ),
      ]);
    });

    it('also when most of it is of a newer day, until there is less of it', async () => {
      const newer = await past.events(-1, 10);
      const old = await past.events(9, 6);
      await past.waiting(old.slice(0, 1), mail);
      expect(await purge(limits)).toEqual({ ...nothing, left: 1 });
      expect(
        log.matching(/alone: 1 of its events are not finished and 10 of a newer day are in its bucket/),
      ).toHaveLength(1);
      await database.query('DELETE FROM outbox.deliveries');
      expect(await purge(limits)).toEqual({ ...nothing, days: 1, kept: 10, marks: 1 });
      expect(await past.left([...old, ...newer])).toEqual(newer);
    });

    it('and when it is little beside a newer day, it goes with that: no publish of that day waits for it', async () => {
      const newer = await past.events(-1, 6);
      const old = await past.events(9, 4);
      await past.marked(old, ledger);
      const files = await past.files();
      expect(await purge(limits)).toEqual(nothing);
      expect(await past.files()).toEqual(files);
      expect(log.lines).toEqual([]);
      // Worth it, when the newer day has hardly begun.
      await database.query('DELETE FROM outbox.events WHERE id = $1', [newer[0]]);
      expect(await purge(limits)).toEqual({ ...nothing, days: 1, kept: 5, marks: 1 });
      expect(await past.left([...old, ...newer])).toEqual(newer.slice(1));
    });
  });

  describe('events first, marks later', () => {
    it('in two transactions: with the marks locked the events are gone, and the next pass takes the marks', async () => {
      const old = await past.events(9, 5);
      await past.marked(old, ledger);
      await past.failed(old, ledger);
      const reader = await session();
      await reader.query('BEGIN');
      await reader.query(`SELECT count(*) FROM outbox.handled_${bucketOf(old[0] ?? '')}`);
      expect(await purge({ tries: 3 })).toEqual({ ...nothing, days: 1, left: 1 });
      expect(await past.left(old)).toEqual([]);
      expect(await past.traces(old)).toBe(10);
      expect(log.matching(/^warn/)).toEqual([expect.stringMatching(/leaves the marks of bucket \d to its next pass/)]);
      await reader.query('ROLLBACK');
      expect(await purge()).toEqual({ ...nothing, marks: 1 });
      expect(await past.traces(old)).toBe(0);
    });

    it('a pass that is killed between the two is finished by the next one', async () => {
      const old = await past.events(9, 5);
      await past.failed(old, ledger);
      const newer = await past.events(-1, 2);
      await past.marked(newer, ledger);
      const reader = await session();
      await reader.query('BEGIN');
      await reader.query(`SELECT count(*) FROM outbox.attempts_${bucketOf(old[0] ?? '')}`);
      await patient('forget_marks');
      const killed = expect(purge()).rejects.toThrow(/terminat/i);
      const pid = await waitingFor(`attempts_${bucketOf(old[0] ?? '')}`);
      await database.query('SELECT pg_terminate_backend($1)', [pid]);
      await killed;
      await reader.query('ROLLBACK');
      expect(await past.left(old)).toEqual([]);
      expect(await past.traces(old)).toBe(5);
      expect(await purge()).toEqual({ ...nothing, marks: 1 });
      expect(await past.traces([...old, ...newer])).toBe(2);
    });

    it('marks that were left wait for the end of a newer day that has filled their bucket meanwhile', async () => {
      const old = await past.events(9, 3);
      await past.marked(old, ledger);
      await database.query('DELETE FROM outbox.events');
      const newer = await past.events(-1, 11);
      await past.marked(newer, ledger);
      expect(await purge({ setAside: 10 })).toEqual(nothing);
      expect(await past.traces(old)).toBe(3);
      await database.query('DELETE FROM outbox.events WHERE id = $1', [newer[0]]);
      expect(await purge({ setAside: 10 })).toEqual({ ...nothing, marks: 1 });
      expect([await past.traces(old), await past.traces(newer)]).toEqual([0, 10]);
    });

    it('and one that is killed while it forgets the events has changed nothing', async () => {
      const old = await past.events(9, 5);
      await past.marked(old, ledger);
      const rows = await past.all(old);
      // Stops the function where the events have been truncated and are about to be put back.
      await database.query(
        `CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
         CREATE TRIGGER held AFTER TRUNCATE ON outbox.events_${bucketOf(old[0] ?? '')} EXECUTE FUNCTION held()`,
      );
      await patient('forget_events');
      const holder = await session();
      await holder.query('SELECT pg_advisory_lock(1)');
      const killed = expect(purge()).rejects.toThrow(/terminat/i);
      const pid = await eventually('it has truncated', async () => (await purging()).find(({ waits }) => waits)?.pid);
      await database.query('SELECT pg_terminate_backend($1)', [pid]);
      await killed;
      await holder.query('SELECT pg_advisory_unlock(1)');
      expect(await past.all(old)).toEqual(rows);
      expect(await purge()).toMatchObject({ days: 1, marks: 1 });
    });
  });

  describe('a handler of that day that is still open', () => {
    it('only delays: it ends undisturbed, and the day goes afterwards', async () => {
      const old = await past.events(9, 5);
      const [first = ''] = old;
      await past.waiting([first], mail, { lease: 7 });
      await past.marked(old, ledger);
      const handler = await session();
      await handler.query('BEGIN');
      expect(await claim(handler, first, mail, 7)).toMatchObject({ claimed: true });
      const pass = purge({ tries: 1_000 });
      const table = `events_${bucketOf(first)}`;
      await waitingFor(table);
      // Again and again, and in between it waits without a lock.
      await eventually('a pause between two tries', async () => {
        const [backend] = await purging();
        return backend && !backend.waits;
      });
      await waitingFor(table);
      await handler.query('COMMIT');
      expect(await pass).toEqual({ ...nothing, days: 1, marks: 1 });
      expect(await past.all(old)).toEqual([]);
    });

    it('leaves the day to the next pass when it stays open, with one warning', async () => {
      const old = await past.events(9, 5);
      const other = await past.events(8, 5);
      const [first = ''] = old;
      await past.waiting([first], mail, { lease: 7 });
      const handler = await session();
      await handler.query('BEGIN');
      await claim(handler, first, mail, 7);
      expect(await purge({ tries: 3 })).toEqual({ ...nothing, days: 1, marks: 1, left: 1 });
      expect(await past.left([...old, ...other])).toEqual(old);
      expect(log.matching(/^warn/)).toEqual([
        expect.stringMatching(
          new RegExp(`leaves the events of ${dayOf(first)} to its next pass: .* held a lock on them in all 3 tries`),
        ),
      ]);
      await handler.query('ROLLBACK');
      expect(await purge()).toMatchObject({ days: 1, kept: 1 });
      expect(await past.left(old)).toEqual([first]);
    });

    it('and one that comes while the day is being forgotten finds its event, for it has survived', async () => {
      const old = await past.events(9, 5);
      const [first = '', second = ''] = old;
      await past.waiting([first], mail, { lease: 7 });
      const forgetter = await session();
      await forgetter.query('BEGIN');
      await forgetter.query(`SELECT outbox.forget_events($1, now() - interval '7 days')`, [bucketOf(first)]);
      const handler = await session();
      await handler.query(`ALTER FUNCTION outbox.claim_${bucketOf(first)} SET lock_timeout = '30s'`);
      await handler.query('BEGIN');
      const claimed = claim(handler, first, mail, 7);
      await eventually('the claim waits', () =>
        database.value<boolean>(
          `SELECT count(*) = 1 FROM pg_locks WHERE relation = 'outbox.events_${bucketOf(first)}'::regclass AND NOT granted`,
        ),
      );
      await forgetter.query('COMMIT');
      expect(await claimed).toMatchObject({ claimed: true, payload: { n: 1 }, tenant_id: 'acme', attempt: 1 });
      await handler.query('COMMIT');
      expect(await claim(handler, second, mail, 7)).toMatchObject({ claimed: false });
      expect(await past.traces([first])).toBe(1);
    });
  });

  it.each(['a retry', 'a fan-out', 'a back-fill'] as const)(
    'what becomes unfinished while a pass waits for its lock survives as well: %s',
    async (by) => {
      const old = await past.events(9, 5);
      await past.marked(old, ledger, 'x');
      await past.failed(old, ledger);
      const tables = new Database(source, 'outbox');
      await database.query(`INSERT INTO outbox.durables (name) VALUES ('ledger'), ('mail')`);
      await database.query(
        `INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at) SELECT id, 'ledger', type, payload, created_at FROM outbox.events`,
      );
      const other = await session();
      const run = ({ text, values }: Bound) => other.query(text, [...values]);
      await other.query('BEGIN');
      if (by === 'a retry') await run(tables.deadLetters.retry(old[0] ?? '', 'ledger'));
      if (by === 'a fan-out') {
        await past.queued(old.slice(0, 1));
        await database.query(
          `INSERT INTO outbox.durable_types (durable, pattern, matcher, since) VALUES (2, 'a', $1, '-infinity')`,
          [past.type],
        );
        await run(tables.queue.fanOut('-infinity', 500, null, [], [], '0 seconds'));
      }
      if (by === 'a back-fill') {
        await database.query(
          `INSERT INTO outbox.durable_types (durable, pattern, matcher, since, backfill_to) VALUES (2, 'a', $1, '-infinity', '00000000-0000-0000-0000-000000000000')`,
          [past.type],
        );
        // The rest of the day, too, has been looked at when this commits.
        await database.query(`DELETE FROM outbox.events WHERE id = ANY ($1)`, [old.slice(1)]);
        await run(tables.durables.backfill([mail], 100));
        await past.events(9, 5, 'a.b.c');
      }
      await patient('forget_events');
      const pass = purge();
      await waitingFor(`events_${bucketOf(old[0] ?? '')}`);
      await other.query('COMMIT');
      expect(await pass).toMatchObject({ days: 1, kept: 1, marks: 1 });
      expect(await past.left(old)).toEqual(old.slice(0, 1));
      expect(await database.query('SELECT event_id FROM outbox.deliveries')).toEqual([{ event_id: old[0] }]);
    },
  );

  describe('waits for nobody and lets nobody of another day wait', () => {
    /** Publishes, and claims an event of every bucket but that of nine days ago, in a session that may not wait for any lock. */
    async function othersGoOn(): Promise<void> {
      const other = await session();
      // Any wait for a lock ends in an error, however short the lock is held.
      await other.query(`SET lock_timeout = '1ms'`);
      await other.query(
        `WITH src AS (SELECT outbox.uuid7(clock_timestamp()) AS id), q AS (INSERT INTO outbox.queue (event_id) SELECT id FROM src)
         INSERT INTO outbox.events (bucket, id, type, payload) SELECT outbox.bucket(id), id, 'a.b.c', '{}' FROM src`,
      );
      for (let days = 0; days < 9; days++) {
        const [id = ''] = await past.events(days);
        await past.waiting([id], mail, { lease: 7 });
        await other.query(`ALTER FUNCTION outbox.claim_${bucketOf(id)} SET lock_timeout = '1ms'`);
        await other.query('BEGIN');
        expect(await claim(other, id, mail, 7)).toMatchObject({ claimed: true });
        await other.query('COMMIT');
      }
    }

    it('while it waits for the events', async () => {
      const [id = ''] = await past.events(9);
      const handler = await session();
      await handler.query('BEGIN');
      await past.waiting([id], mail, { lease: 7 });
      await claim(handler, id, mail, 7);
      const beside = await past.events(9, 2);
      await past.marked(beside, ledger);
      await patient('forget_events');
      const pass = purge();
      const pid = await waitingFor(`events_${bucketOf(id)}`);
      await othersGoOn();
      // It still waits: all of that happened behind it.
      expect(await waitingFor(`events_${bucketOf(id)}`)).toBe(pid);
      await handler.query('COMMIT');
      expect(await pass).toMatchObject({ days: expect.any(Number), left: 0 });
    });

    it.each(['forget_events', 'forget_marks'] as const)('while it holds its locks: %s', async (name) => {
      const [id = ''] = await past.events(9);
      await past.marked([id], ledger);
      const forgetter = await session();
      await forgetter.query('BEGIN');
      const values = name === 'forget_events' ? `$1, now() - interval '7 days'` : '$1';
      await forgetter.query(`SELECT outbox.${name}(${values})`, [bucketOf(id)]);
      await othersGoOn();
      await forgetter.query('ROLLBACK');
    });
  });

  it('two passes at once, and eight, take nothing from each other', async () => {
    const survivors: string[] = [];
    const gone: string[] = [];
    for (let days = 8; days < 18; days++) {
      const ids = await past.events(days, 50);
      await past.marked(ids, ledger);
      await past.failed(ids, ledger);
      await past.waiting(ids.slice(0, 5), mail);
      survivors.push(...ids.slice(0, 5));
      gone.push(...ids.slice(5));
    }
    const rows = await past.all(survivors);
    const two = await Promise.all([purge({ tries: 1_000 }), purge({ tries: 1_000 })]);
    expect(two.map(({ left }) => left)).toEqual([0, 0]);
    expect(await past.all(survivors)).toEqual(rows);
    expect(await past.all(gone)).toEqual([]);
    await database.query('DELETE FROM outbox.deliveries WHERE event_id = ANY ($1)', [survivors.splice(0, 25)]);
    const rest = await past.all(survivors);
    await Promise.all(Array.from({ length: 8 }, () => purge({ tries: 1_000 })));
    expect(await database.value('SELECT count(*)::int FROM outbox.events')).toBe(survivors.length);
    expect(await past.all(survivors)).toEqual(rest);
    expect(log.matching(/^(warn|error)/)).toEqual([]);
  });

  it('under another isolation it refuses: an older snapshot would lose what was committed meanwhile', async () => {
    const client = await session();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await expect(client.query('SELECT outbox.forget_events(0, now())')).rejects.toThrow(/needs READ COMMITTED/);
    await client.query('ROLLBACK');
    await client.query('BEGIN ISOLATION LEVEL SERIALIZABLE');
    await expect(client.query('SELECT outbox.forget_marks(0)')).rejects.toThrow(/needs READ COMMITTED/);
  });

  describe('a pass', () => {
    it('does nothing under a signal that is aborted', async () => {
      const old = await past.events(9);
      expect(await purge({}, AbortSignal.abort())).toEqual(nothing);
      expect(await past.left(old)).toEqual(old);
    });

    it('ends between two tries when the signal aborts, without a warning', async () => {
      const old = await past.events(9);
      const reader = await session();
      await reader.query('BEGIN');
      await reader.query(`SELECT count(*) FROM outbox.events_${bucketOf(old[0] ?? '')}`);
      const stop = new AbortController();
      const pass = purge({ pauseMs: [3_600_000, 3_600_000] }, stop.signal);
      await waitingFor(`events_${bucketOf(old[0] ?? '')}`);
      stop.abort();
      expect(await pass).toEqual({ ...nothing, left: 1 });
      expect(log.lines).toEqual([]);
    });

    it('a step that fails stops no other, and is told at the end', async () => {
      const [eight, nine] = [await past.events(8), await past.events(9)];
      await database.query(
        `INSERT INTO outbox.unique_keys SELECT '', 'a.b.c', '\\x00', gen_random_uuid(), now() - interval '1 s'`,
      );
      await database.query(
        `INSERT INTO outbox.job_state (job, schedule, seen_at) VALUES ('gone', '* * * * *', now() - interval '31 days')`,
      );
      await database.query(
        `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
         CREATE TRIGGER refuse BEFORE TRUNCATE ON outbox.events_${bucketOf(eight[0] ?? '')} EXECUTE FUNCTION refuse();
         CREATE TRIGGER refuse BEFORE DELETE ON outbox.unique_keys EXECUTE FUNCTION refuse()`,
      );
      const error = await purge().catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(AggregateError);
      expect(error).toMatchObject({
        message: 'outbox.purge failed in part: not this one; not this one',
        errors: [{ code: 'P0001' }, { code: 'P0001' }],
      });
      expect(await past.left([...eight, ...nine])).toEqual(eight);
      expect(await database.value('SELECT count(*)::int FROM outbox.job_state')).toBe(0);
    });
  });
});
