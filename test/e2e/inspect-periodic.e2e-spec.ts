import { type JobContext, OutboxInspector, outboxSchema, type PeriodicInfo } from 'nestjs-outbox';
import { eventually, gate } from '../support/eventually.js';
import { overOf, runsOf, stateOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';
import { createRole, describeWithRoles, type TestRole } from '../support/test-role.js';

async function look({ app }: TestApp, name: string): Promise<PeriodicInfo> {
  const found = (await app.get(OutboxInspector).periodic()).find(({ job: each }) => each === name);
  if (!found) throw new Error(`no job ${name}`);
  return found;
}

describe('what periodic() tells of a job', () => {
  const stage = useStage();
  let desk: TestApp;
  const seen = (name: string) => eventually(`${name} is registered`, () => stateOf(stage, name));

  beforeAll(async () => {
    desk = await stage.boot({ outbox: { role: 'publisher' } });
  });

  it('that has not run yet: its schedule and its next three ticks, where it is known', async () => {
    const app = await stage.boot({
      providers: [job('test.new', '0 3 * * *', () => {}, { timeZone: 'Europe/Vienna' })],
    });
    const { seen_at } = (await seen('test.new')) as { seen_at?: Date };
    const here = await look(app, 'test.new');
    const [first, second, third] = here.next.map(Number);
    expect(here).toEqual({
      ...{ job: 'test.new', schedule: 'cron 0 3 * * * Europe/Vienna', parallel: false, lastSlot: null, outcome: null },
      ...{
        running: null,
        lock: null,
        retry: null,
        paused: null,
        askedAt: null,
        askedBy: null,
        runs: [],
        seenAt: seen_at,
      },
      next: [expect.any(Date), expect.any(Date), expect.any(Date)],
    });
    expect((first ?? 0) > Date.now() - 60_000 && (third ?? 0) > (second ?? 0) && (second ?? 0) > (first ?? 0)).toBe(
      true,
    );
    const hour = { timeZone: 'Europe/Vienna', hour: 'numeric', hour12: false } as const;
    expect(here.next.map((tick) => tick.toLocaleString('en-GB', hour))).toEqual(['03', '03', '03']);
    // Nobody has computed one yet, and this process does not have the job.
    expect(await look(desk, 'test.new')).toEqual({ ...here, parallel: null, next: [] });
    await app.close();
  });

  it('that ran: its last slot and run; elsewhere the next tick that was written down with it', async () => {
    const app = await stage.boot({ providers: [job('test.ran', yearly, () => {})] });
    await tickNow(stage, app, 'test.ran');
    await overOf(stage, 'test.ran');
    const here = await look(app, 'test.ran');
    const year = new Date().getUTCFullYear();
    expect(here.lastSlot?.toISOString()).toMatch(/-01-01T00:00:00.000Z$/);
    expect(here).toMatchObject({ outcome: 'done', running: null, lock: null });
    expect(here.runs).toEqual([
      {
        ...{ slot: here.lastSlot, attempt: 1, outcome: 'done', error: null, worker: expect.stringMatching(/:\d+$/) },
        ...{ startedAt: expect.any(Date), finishedAt: expect.any(Date) },
      },
    ]);
    expect(here.next.map((tick) => tick.toISOString())).toEqual(
      [year + 1, year + 2, year + 3].map((each) => `${each}-01-01T00:00:00.000Z`),
    );
    expect((await look(desk, 'test.ran')).next).toEqual([here.next[0]]);
    await app.close();
  });

  it('whose schedule is another by now: not the ticks of this older version', async () => {
    const app = await stage.boot({ providers: [job('test.older', yearly, () => {})] });
    await seen('test.older');
    await stage.database.query(
      `UPDATE outbox.job_state SET schedule = 'every 1000', former = array_append(former, schedule) WHERE job = 'test.older'`,
    );
    expect(await look(app, 'test.older')).toMatchObject({ schedule: 'every 1000', next: [] });
    await app.close();
  });

  it('that runs: since when, where, and the session that holds its lock', async () => {
    const [started, release] = [gate(), gate()];
    const run = () => {
      started.open();
      return release.passed;
    };
    const app = await stage.boot({ providers: [job('test.runs', yearly, run)] });
    await seen('test.runs');
    const slot = await app.app.get(OutboxInspector).runPeriodic('test.runs');
    await started.passed;
    const info = await look(desk, 'test.runs');
    expect(info).toMatchObject({
      running: { slot, attempt: 1, held: true, since: expect.any(Date), worker: expect.stringMatching(/:\d+$/) },
      lock: { application: 'nestjs-outbox jobs', since: expect.any(Date) },
      ...{ outcome: null, askedAt: null, retry: null, runs: [{ slot, attempt: 1, finishedAt: null, outcome: null }] },
    });
    const holder = 'SELECT application_name FROM pg_stat_activity WHERE pid = $1';
    expect(await stage.database.value(holder, [info.lock?.pid])).toBe('nestjs-outbox jobs');
    release.open();
    await overOf(stage, 'test.runs');
    await eventually('the lock is given back', async () => (await look(desk, 'test.runs')).lock === null);
    await app.close();
  });

  it('whose row says that it runs while nobody holds its lock', async () => {
    await stage.database.query(
      `INSERT INTO outbox.job_state (job, schedule, running_slot, attempt, worker, started_at) VALUES ('test.left', $1, now(), 2, 4711, now())`,
      [`cron ${yearly} UTC`],
    );
    expect(await look(desk, 'test.left')).toMatchObject({
      running: { attempt: 2, worker: '4711', held: false },
      ...{ lock: null, outcome: null, runs: [{ attempt: 2, finishedAt: null, outcome: null }] },
    });
  });

  it('that others only look at is held by none', async () => {
    const { dataSource } = desk;
    const info = await look(desk, 'test.left');
    const key = await stage.database.value<number>(
      `SELECT ('x' || substr(encode(sha256('test.left'), 'hex'), 1, 8))::bit(32)::int`,
    );
    const space = await stage.database.value<number>(
      `SELECT ('x' || substr(encode(sha256('nestjs-outbox:job:outbox'), 'hex'), 1, 8))::bit(32)::int`,
    );
    await dataSource.transaction(async (manager) => {
      await manager.query('SELECT pg_advisory_xact_lock_shared($1, $2)', [space, key]);
      expect(await look(desk, 'test.left')).toEqual(info);
    });
    await dataSource.transaction(async (manager) => {
      await manager.query('SELECT pg_advisory_xact_lock($1, $2)', [space, key]);
      expect(await look(desk, 'test.left')).toMatchObject({
        running: { held: true },
        lock: { pid: expect.any(Number) },
      });
    });
  });

  it('that failed and waits: when it is tried again, and with what it failed', async () => {
    const run = () => Promise.reject(new Error('on purpose'));
    const app = await stage.boot({ providers: [job('test.fails', yearly, run, { retries: 100 })] });
    await tickNow(stage, app, 'test.fails');
    const { slot } = await eventually('it has failed', async () => {
      const [first] = await runsOf(stage, 'test.fails');
      return first?.finished_at && first;
    });
    await app.close();
    const info = await look(desk, 'test.fails');
    expect(info.retry).toEqual({ slot, attempt: info.runs.length + 1, at: expect.any(Date) });
    expect(info).toMatchObject({ running: null, lock: null, outcome: 'failed' });
    expect(info.runs[0]?.error).toMatch(/^Error: on purpose\n/);
  });

  it('that its process left at a stop: as soon as somebody looks', async () => {
    const [started, release] = [gate(), gate()];
    const run = ({ signal }: JobContext) => {
      started.open();
      return new Promise((resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason), { once: true });
        void release.passed.then(resolve);
      });
    };
    const app = await stage.boot({ outbox: { drain: '100ms' }, providers: [job('test.stops', yearly, run)] });
    await seen('test.stops');
    const slot = await app.app.get(OutboxInspector).runPeriodic('test.stops');
    await started.passed;
    await app.close();
    expect(await look(desk, 'test.stops')).toMatchObject({
      ...{ running: null, outcome: 'interrupted', retry: { slot, attempt: 1, at: null } },
    });
    release.open();
  });

  it('that is paused, and that was asked for', async () => {
    const app = await stage.boot({ providers: [job('test.rests', yearly, () => {})] });
    await seen('test.rests');
    await app.close();
    const asked = await desk.app.get(OutboxInspector).runPeriodic('test.rests', { by: 'ana' });
    const until = new Date(Date.now() + 3_600_000);
    const insert = `INSERT INTO outbox.pauses (kind, name, reason, paused_by, until) VALUES ($1, $2, 'INC-42', 'bob', $3) RETURNING id`;
    await stage.database.query(insert, ['durable', 'test.rests', null]);
    const id = await stage.database.value<number>(insert, ['job', 'test.rests', until]);
    expect(await look(desk, 'test.rests')).toMatchObject({
      ...{ askedAt: asked, askedBy: 'ana' },
      paused: { id, kind: 'job', name: 'test.rests', since: expect.any(Date), until, by: 'bob', reason: 'INC-42' },
    });
    await stage.database.query('UPDATE outbox.pauses SET ended_at = now()');
    expect((await look(desk, 'test.rests')).paused).toBeNull();
  });

  it('that has run often: the last ten attempts, newest first', async () => {
    await stage.database.query(
      `INSERT INTO outbox.job_state (job, schedule, last_slot, started_at, finished_at, outcome, attempt)
       VALUES ('test.ten', 'every 3600000', '2026-01-01 12:00Z', '2026-01-01 12:00Z', '2026-01-01 12:01Z', 'done', 2)`,
    );
    await stage.database.query(
      `INSERT INTO outbox.job_runs (job, slot, attempt, started_at, outcome)
       SELECT 'test.ten', s, a, s, 'done' FROM generate_series('2026-01-01 00:00Z'::timestamptz, '2026-01-01 12:00Z', '1 hour') s, generate_series(1, 2) a`,
    );
    const { runs, next } = await look(desk, 'test.ten');
    const told = [12, 12, 11, 11, 10, 10, 9, 9, 8, 8].map((hour, n) => [hour, 2 - (n % 2)]);
    expect(runs.map(({ slot, attempt }) => [slot.getUTCHours(), attempt])).toEqual(told);
    // A tick that was written down and has passed is no next one.
    expect(next).toEqual([]);
  });

  it('that keeps no history: the last run, and those that were asked for', async () => {
    // Twice within a minute, and once a year.
    const app = await stage.boot({ providers: [job('test.often', '0,30 0 0 1 1 *', () => {})] });
    const asked = await app.app.get(OutboxInspector).runPeriodic('test.often');
    await overOf(stage, 'test.often');
    await tickNow(stage, app, 'test.often');
    await eventually('its slot is over', async () => {
      const state = await stateOf(stage, 'test.often');
      return state?.outcome === 'done' && state.running_slot === null && state.last_slot.getUTCSeconds() === 30;
    });
    const { runs, lastSlot } = await look(desk, 'test.often');
    expect(runs.map(({ slot, outcome }) => [slot, outcome])).toEqual([
      [lastSlot, 'done'],
      [asked, 'done'],
    ]);
    await app.close();
  });

  it('that is parallel: what any of its instances came to last', async () => {
    const app = await stage.boot({ providers: [job('test.beat', { every: '100ms' }, () => {}, { parallel: true })] });
    const info = await eventually('a run of it is noted', async () => {
      const found = await look(app, 'test.beat');
      return found.outcome && found;
    });
    expect(info).toMatchObject({
      ...{ parallel: true, running: null, lock: null, outcome: 'done' },
      runs: [{ attempt: 1 }],
    });
    const [first, second] = info.next.map(Number);
    expect([(first ?? 0) % 100, (second ?? 0) - (first ?? 0)]).toEqual([0, 100]);
    await app.close();
  });

  it("and of the library's own, one row each, by name", async () => {
    const names = (await desk.app.get(OutboxInspector).periodic()).map(({ job: name }) => name);
    expect(names).toContain('outbox.purge');
    expect(names).toEqual(names.toSorted());
  });
});

describeWithRoles('with no more than its grants', () => {
  const stage = useStage();
  const roles: Partial<Record<'operator' | 'retrier', TestRole>> = {};
  const desk = (role: TestRole | undefined) =>
    stage.boot({
      url: role?.urlOf(stage.database) ?? '',
      outbox: { role: 'publisher', schema: { onStart: 'verify' } },
    });

  beforeAll(async () => {
    const app = await stage.boot({ providers: [job('test.granted', yearly, () => {})] });
    await eventually('it is registered', () => stateOf(stage, 'test.granted'));
    await app.close();
    for (const actor of ['operator', 'retrier'] as const) {
      const role = await createRole(actor);
      roles[actor] = role;
      // An application that offers the operator's side is also a publisher to the gate.
      for (const sql of outboxSchema.grants({ [actor]: role.name, publisher: role.name }))
        await stage.database.query(sql);
    }
  });

  // Runs after the stage's own hook: with the database the grants are gone.
  afterAll(async () => {
    for (const role of Object.values(roles)) await role.drop();
  });

  it('an operator looks, and asks for nothing', async () => {
    const app = await desk(roles.operator);
    expect(await look(app, 'test.granted')).toMatchObject({ running: null });
    await expect(app.app.get(OutboxInspector).runPeriodic('test.granted')).rejects.toMatchObject({ code: '42501' });
    await app.close();
  });

  it('a retrier asks, and what waits for its retry is brought forward', async () => {
    await stage.database.query(
      `UPDATE outbox.job_state SET running_slot = now(), attempt = 1, retry_at = now() + interval '1 hour' WHERE job = 'test.granted'`,
    );
    const app = await desk(roles.retrier);
    const slot = await app.app.get(OutboxInspector).runPeriodic('test.granted');
    const { askedAt, retry } = await look(app, 'test.granted');
    expect(askedAt).toEqual(slot);
    expect(Number(retry?.at)).toBeLessThan(slot.getTime() + 60_000);
    await app.close();
  });
});
