import { DataSource } from 'typeorm';
import { eventually } from '../../../../test/support/eventually.js';
import { CapturedLog } from '../../../../test/support/test-app.js';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import { Database } from '../tables/database.js';
import { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { outboxSchema } from '../tables/schema/outbox-schema.js';
import type { Bound } from '../tables/wire/statement.js';
import { Purge } from './purge.js';
import { type PurgeLimits, purgeLimits } from './purge-limits.js';

describe('retention, beside the events', () => {
  let database: TestDatabase;
  let source: DataSource;

  beforeEach(async () => {
    database = await createDatabase();
    source = await new DataSource({ type: 'postgres', url: database.url }).initialize();
    await outboxSchema.up(source);
  });

  afterEach(async () => {
    await source.destroy();
    await database.drop();
  });

  const purge = (limits: Partial<PurgeLimits> = {}, signal = new AbortController().signal) =>
    new Purge(new Database(source, 'outbox'), { retentionMs: 86_400_000 }, new CapturedLog(), {
      ...purgeLimits,
      ...limits,
    }).run(signal);
  const count = (table: string, where = 'true') =>
    database.value<number>(`SELECT count(*)::int FROM ${table} WHERE ${where}`);

  it('forgets the unique keys that are no more in force, batch by batch, and no other', async () => {
    await database.query(
      `INSERT INTO outbox.unique_keys (tenant, type, key, event_id, expires_at)
       SELECT '', 'a.b.c', int4send(n), gen_random_uuid(), now() - n * interval '1 s' FROM generate_series(-20, 25) n`,
    );
    // Many of one moment: a batch ends among them.
    await database.query(
      `INSERT INTO outbox.unique_keys (tenant, type, key, event_id, expires_at)
       SELECT 'many', 'a.b.c', int4send(n), gen_random_uuid(), now() - interval '1 hour' FROM generate_series(1, 25) n`,
    );
    // That of now() itself was expired, too.
    expect(await purge({ batch: 10 })).toMatchObject({ uniqueKeys: 51 });
    expect(await count('outbox.unique_keys')).toBe(20);
    expect(await count('outbox.unique_keys', 'expires_at > now()')).toBe(20);
  });

  it('leaves what somebody has locked to the next pass, and does not wait for it', async () => {
    await database.query(
      `INSERT INTO outbox.unique_keys (tenant, type, key, event_id, expires_at)
       SELECT '', 'a.b.c', int4send(n), gen_random_uuid(), now() - n * interval '1 s' FROM generate_series(1, 25) n`,
    );
    await source.transaction(async (manager) => {
      // As a publisher does that takes an expired key over.
      await manager.query(`UPDATE outbox.unique_keys SET expires_at = now() + interval '1 h' WHERE key = int4send(24)`);
      expect(await purge({ batch: 10 })).toMatchObject({ uniqueKeys: 24 });
    });
    expect(await purge({ batch: 10 })).toMatchObject({ uniqueKeys: 0 });
    expect(await count('outbox.unique_keys')).toBe(1);
  });

  it('a batch begins where the one before it ended', async () => {
    await database.query(
      `INSERT INTO outbox.unique_keys (tenant, type, key, event_id, expires_at)
       SELECT '', 'a.b.c', int4send(n), gen_random_uuid(), now() - n * interval '1 s' FROM generate_series(1, 25) n`,
    );
    const run = jest.spyOn(InfrastructureConnection.prototype, 'run');
    await purge({ batch: 10 });
    const froms = (run.mock.calls as unknown as Bound[][])
      .flat()
      .filter(({ name }) => name.startsWith('outbox_purge_unique_keys'))
      .map(({ values }) => values[0]);
    run.mockRestore();
    expect(froms).toHaveLength(3);
    expect(froms[0]).toBe('-infinity');
    const [, second = '', third = ''] = froms;
    expect(Date.parse(third ?? '')).toBeGreaterThan(Date.parse(second ?? ''));
  });

  it('forgets dead letters thirty days after they were resolved, and an open one never', async () => {
    const letters = (state: string, dead: string, resolved: string) =>
      database.query(
        `INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at, dead_at, resolved_at, resolution)
         SELECT gen_random_uuid(), $1, 'a.b.c', '{}', ${dead}, ${dead}, ${resolved}, $1 FROM generate_series(1, 12)`,
        [state],
      );
    await letters('open', "now() - interval '900 days'", 'NULL');
    await letters('lately', "now() - interval '900 days'", "now() - interval '29 days'");
    await letters('long ago', "now() - interval '31 days'", "now() - interval '721 hours'");
    expect(await purge({ batch: 5 })).toMatchObject({ deadLetters: 12 });
    expect(await database.query('SELECT DISTINCT durable FROM outbox.dead_letters ORDER BY 1')).toEqual([
      { durable: 'lately' },
      { durable: 'open' },
    ]);
  });

  it('forgets runs of jobs after thirty days, and all but the newest thousand of a job', async () => {
    await database.query(
      `INSERT INTO outbox.job_runs (job, slot, attempt) SELECT job, date_trunc('minute', now()) - n * step, a
       FROM (VALUES ('often', interval '1 minute', 2500, 1), ('daily', interval '1 day', 50, 1), ('again', interval '1 hour', 20, 3)) j(job, step, runs, attempts),
         generate_series(1, runs) n, generate_series(1, attempts) a`,
    );
    expect(await purge({ batch: 100 })).toMatchObject({ jobRuns: 1_500 + 21 });
    const rows = await database.query(
      `SELECT job, count(*)::int AS n, (extract(epoch FROM now() - min(slot)) / 60)::int AS oldest FROM outbox.job_runs GROUP BY job ORDER BY job`,
    );
    expect(rows).toEqual([
      { job: 'again', n: 60, oldest: expect.any(Number) },
      { job: 'daily', n: 29, oldest: expect.any(Number) },
      { job: 'often', n: 1_000, oldest: expect.any(Number) },
    ]);
    expect(rows.at(-1)?.['oldest']).toBeLessThanOrEqual(1_001);
    // Of two attempts of one slot the older goes first.
    expect(await purge({ batch: 100, jobRunsKept: 28 })).toMatchObject({ jobRuns: 972 + 1 + 32 });
    expect(
      await database.query(
        `SELECT attempt, count(*)::int AS n FROM outbox.job_runs WHERE job = 'again' GROUP BY 1 ORDER BY 1`,
      ),
    ).toEqual([
      { attempt: 1, n: 9 },
      { attempt: 2, n: 9 },
      { attempt: 3, n: 10 },
    ]);
  });

  it('forgets a job that was not seen for thirty days, with what its last slot left', async () => {
    await database.query(
      `INSERT INTO outbox.job_state (job, schedule, seen_at, last_slot) VALUES ('renamed', '* * * * *', now() - interval '721 hours', now()),
       ('yearly', '0 0 1 1 *', now() - interval '29 days', now() - interval '200 days')`,
    );
    await database.query(
      `INSERT INTO outbox.job_tenants (job, slot, part, tenant) SELECT job, now(), 0, 't' || n FROM outbox.job_state, generate_series(1, 20) n`,
    );
    expect(await purge()).toMatchObject({ jobStates: 1 });
    expect(await database.query('SELECT job FROM outbox.job_state')).toEqual([{ job: 'yearly' }]);
    expect(await database.query('SELECT job, count(*)::int AS n FROM outbox.job_tenants GROUP BY job')).toEqual([
      { job: 'yearly', n: 20 },
    ]);
  });

  it('stops between two batches when the signal aborts', async () => {
    await database.query(
      `INSERT INTO outbox.unique_keys (tenant, type, key, event_id, expires_at)
       SELECT '', 'a.b.c', int4send(n), gen_random_uuid(), now() - n * interval '1 s' FROM generate_series(1, 25) n;
       CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
       CREATE TRIGGER held BEFORE DELETE ON outbox.unique_keys EXECUTE FUNCTION held();
       SELECT pg_advisory_lock(1)`,
    );
    const stop = new AbortController();
    const pass = purge({ batch: 10 }, stop.signal);
    await eventually('the first batch is held', () =>
      database.value<boolean>(`SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`),
    );
    stop.abort();
    await database.query('SELECT pg_advisory_unlock(1)');
    expect(await pass).toMatchObject({ uniqueKeys: 10 });
    expect(await count('outbox.unique_keys')).toBe(15);
  });
});
