import { type JobContext, memory, OutboxInspector, type TenantJobContext } from 'nestjs-outbox';
import { Client } from 'pg';
import { eventually, gate } from '../support/eventually.js';
import type { JobTask } from '../support/job-main.js';
import { overOf, registryOf, retryNow, runsOf, stateOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';
import { bootApp, type TestApp } from '../support/test-app.js';
import { JobSite } from './faults/job-site.js';

const inspectorOf = ({ app }: TestApp): OutboxInspector => app.get(OutboxInspector);

/** Notes the slot and attempt of each run, and does what the test says. */
function noting(work: (context: JobContext, runs: number) => unknown = () => {}) {
  const runs: Pick<JobContext, 'slot' | 'attempt'>[] = [];
  const run = (context: JobContext): unknown => {
    runs.push({ slot: context.slot, attempt: context.attempt });
    return work(context, runs.length);
  };
  return { runs, run };
}

describe('a run that is asked for', () => {
  const stage = useStage();
  let desk: TestApp;
  let inspector: OutboxInspector;
  const ran = (name: string, count: number) =>
    eventually(`${name} has ended ${count} times`, async () => {
      const runs = await runsOf(stage, name);
      return runs.length === count && runs.every(({ finished_at }) => finished_at) && runs;
    });

  beforeAll(async () => {
    desk = await stage.boot({ outbox: { role: 'publisher' } });
    inspector = inspectorOf(desk);
  });

  it('is a slot of its own, and moves none of the schedule', async () => {
    const { runs, run } = noting();
    const app = await stage.boot({ providers: [job('test.one', yearly, run)] });
    const before = await eventually('it is registered', () => stateOf(stage, 'test.one'));
    const slot = await inspector.runPeriodic('test.one', { by: 'ana', reason: 'INC-42' });
    expect(Math.abs(slot.getTime() - Date.now())).toBeLessThan(60_000);
    const [row] = await ran('test.one', 1);
    expect(row).toMatchObject({ slot, attempt: 1, outcome: 'done', error: null });
    expect(runs).toEqual([{ slot, attempt: 1 }]);
    expect(await stateOf(stage, 'test.one')).toMatchObject({
      ...{ last_slot: before.last_slot, running_slot: null, outcome: 'done', asked_at: null, asked_by: null },
    });
    expect(
      await stage.database.query(
        `SELECT who, action, what ->> 'job' AS job, why FROM outbox.audit WHERE why = 'INC-42'`,
      ),
    ).toEqual([{ who: 'ana', action: 'run-job', job: 'test.one', why: 'INC-42' }]);
    await app.close();
  });

  it('begins at once, wherever it was asked for: others are told', async () => {
    const { run } = noting();
    const app = await stage.boot({ providers: [job('test.told', yearly, run)] });
    await eventually('it is registered', () => stateOf(stage, 'test.told'));
    await inspector.runPeriodic('test.told');
    await ran('test.told', 1);
    // When it has looked after the end of its run, the next look by itself is 3 s away.
    await eventually('it has looked', () =>
      stage.database.value<boolean>(
        `SELECT bool_and(state = 'idle' AND query LIKE '%FROM outbox.job_state WHERE job = ANY%') FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'nestjs-outbox jobs'`,
      ),
    );
    const asked = performance.now();
    await inspector.runPeriodic('test.told');
    await ran('test.told', 2);
    expect(performance.now() - asked).toBeLessThan(2_500);
    await app.close();
  });

  it('says so on the channel, in the transaction that asks', async () => {
    const client = new Client({ connectionString: stage.database.url });
    await client.connect();
    const heard = gate<string | undefined>();
    client.on('notification', ({ payload }) => payload?.startsWith('jobs') && heard.open(payload));
    await client.query('LISTEN outbox_wake');
    await inspector.runPeriodic('test.one');
    expect(await heard.passed).toBe('jobs 0');
    await client.end();
  });

  it('is had by whoever asks again before it begins; whoever asks while it runs gets one more', async () => {
    const release = gate();
    const started = gate();
    const { runs, run } = noting((_, count) => {
      started.open();
      return count === 1 ? release.passed : undefined;
    });
    const app = await stage.boot({ providers: [job('test.twice', yearly, run)] });
    const first = await inspectorOf(app).runPeriodic('test.twice');
    await started.passed;
    const [second, third] = await Promise.all([
      inspector.runPeriodic('test.twice', { by: 'bob' }),
      inspector.runPeriodic('test.twice', { by: 'bob' }),
    ]);
    const fourth = await inspector.runPeriodic('test.twice', { by: 'eve' });
    expect([third, fourth]).toEqual([second, second]);
    expect(await stateOf(stage, 'test.twice')).toMatchObject({
      asked_at: second,
      asked_by: 'bob',
      running_slot: first,
    });
    release.open();
    await ran('test.twice', 2);
    expect(runs.map(({ slot }) => slot)).toEqual([first, second]);
    await app.close();
  });

  it('waits for a slot of the schedule that is due', async () => {
    const { runs, run } = noting();
    await (await stage.boot({ providers: [job('test.due', yearly, run)] })).close();
    await stage.database.query(
      `INSERT INTO outbox.job_state (job, schedule, last_slot) VALUES ('test.due', 'cron 0 0 1 1 * UTC', now() - interval '2 years')
       ON CONFLICT (job) DO UPDATE SET last_slot = excluded.last_slot`,
    );
    // Nobody is there: it is kept.
    const asked = await inspector.runPeriodic('test.due');
    const app = await stage.boot({ providers: [job('test.due', yearly, run)] });
    await ran('test.due', 2);
    const regular = (await stateOf(stage, 'test.due'))?.last_slot;
    expect(regular?.getUTCMonth()).toBe(0);
    expect(runs.map(({ slot }) => slot)).toEqual([regular, asked]);
    await app.close();
  });

  it('that fails is tried again as any slot', async () => {
    const { runs, run } = noting((_, count) => {
      if (count === 1) throw new Error('on purpose');
    });
    const app = await stage.boot({ providers: [job('test.fails', yearly, run)] });
    const slot = await inspectorOf(app).runPeriodic('test.fails');
    await retryNow(stage, app, 'test.fails');
    await ran('test.fails', 2);
    expect(runs).toEqual([
      { slot, attempt: 1 },
      { slot, attempt: 2 },
    ]);
    await app.close();
  });

  it('lets a slot that waits for its retry be tried now, and comes after it', async () => {
    const { runs, run } = noting((_, count) => {
      if (count === 1) throw new Error('on purpose');
    });
    const app = await stage.boot({ providers: [job('test.waits', yearly, run)] });
    const first = await inspectorOf(app).runPeriodic('test.waits');
    await eventually('it waits for its retry', async () => (await stateOf(stage, 'test.waits'))?.retry_at);
    await stage.database.query(
      `UPDATE outbox.job_state SET retry_at = clock_timestamp() + interval '1 hour' WHERE job = 'test.waits' AND retry_at IS NOT NULL`,
    );
    const second = await inspector.runPeriodic('test.waits');
    await ran('test.waits', 3);
    expect(runs).toEqual([
      { slot: first, attempt: 1 },
      { slot: first, attempt: 2 },
      { slot: second, attempt: 1 },
    ]);
    await app.close();
  });

  it('runs every tenant, in the slot that was asked for', async () => {
    const seen: [string, Date][] = [];
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => ['a', 'b'] } },
      providers: [
        job('test.tenants', yearly, ({ tenantId, slot }: TenantJobContext) => void seen.push([tenantId, slot]), {
          perTenant: {},
        }),
      ],
    });
    const slot = await inspectorOf(app).runPeriodic('test.tenants');
    await ran('test.tenants', 1);
    expect(seen).toEqual([
      ['a', slot],
      ['b', slot],
    ]);
    expect(await stage.database.query('SELECT FROM outbox.job_tenants')).toEqual([]);
    await app.close();
  });

  it('of a job that ticks too often for a history has one all the same, its retries too', async () => {
    const { runs, run } = noting((_, count) => {
      if (count === 1) throw new Error('on purpose');
    });
    // Twice within a minute, and once a year.
    const app = await stage.boot({ providers: [job('test.often', '0,30 0 0 1 1 *', run)] });
    await tickNow(stage, app, 'test.often');
    await retryNow(stage, app, 'test.often');
    await overOf(stage, 'test.often');
    expect(runs).toHaveLength(2);
    expect(await runsOf(stage, 'test.often')).toEqual([]);
    runs.length = 0;
    const slot = await inspectorOf(app).runPeriodic('test.often');
    expect(slot.getTime() % 10).not.toBe(0);
    await retryNow(stage, app, 'test.often');
    expect(await ran('test.often', 2)).toMatchObject([
      { slot, attempt: 1, outcome: 'failed' },
      { slot, attempt: 2, outcome: 'done' },
    ]);
    await app.close();
  });

  it('of a parallel job is run once, by one of the processes', async () => {
    const runs: Date[] = [];
    const beat = () =>
      job('test.beat', { every: '30d' }, ({ slot }: JobContext) => void runs.push(slot), { parallel: true });
    const apps = await Promise.all([0, 1, 2].map(() => stage.boot({ providers: [beat()] })));
    await eventually('it is registered', () => stateOf(stage, 'test.beat'));
    const first = await inspector.runPeriodic('test.beat');
    await eventually('it is run', async () => runs.length > 0 && (await stateOf(stage, 'test.beat'))?.outcome);
    // Three processes have looked by the time at which a second one has been asked for and run.
    const second = await inspector.runPeriodic('test.beat');
    await eventually('it is run again', () => runs.some((slot) => slot.getTime() === second.getTime()));
    await Promise.all(apps.map((app) => app.close()));
    expect(runs).toEqual([first, second]);
  });

  it('is not run by a process with an older schedule', async () => {
    const { runs, run } = noting();
    const other = noting();
    await stage.boot({ providers: [job('test.old', yearly, run)] }).then(({ close }) => close());
    await stage.database.query(
      `INSERT INTO outbox.job_state (job, schedule, former) VALUES ('test.old', 'cron 0 0 2 1 * UTC', '{cron 0 0 1 1 * UTC}')
       ON CONFLICT (job) DO UPDATE SET schedule = excluded.schedule, former = excluded.former, seen_at = now()`,
    );
    const app = await stage.boot({ providers: [job('test.old', yearly, run), job('test.new', yearly, other.run)] });
    const slot = await inspector.runPeriodic('test.old');
    await inspectorOf(app).runPeriodic('test.new');
    await ran('test.new', 1);
    expect(runs).toEqual([]);
    expect(await stateOf(stage, 'test.old')).toMatchObject({ asked_at: slot, running_slot: null });
    await app.close();
  });

  it('is not begun by a process that has stopped the job in the registry', async () => {
    const { runs, run } = noting();
    const app = await stage.boot({ providers: [job('test.stopped', yearly, run)] });
    registryOf(app).getCronJob('test.stopped').stop();
    const slot = await inspectorOf(app).runPeriodic('test.stopped');
    await inspectorOf(app).runPeriodic('outbox.purge');
    await overOf(stage, 'outbox.purge');
    expect(runs).toEqual([]);
    registryOf(app).getCronJob('test.stopped').start();
    await ran('test.stopped', 1);
    expect(runs).toEqual([{ slot, attempt: 1 }]);
    await app.close();
  });

  it("may be of the library's own job", async () => {
    const app = await stage.boot();
    const slot = await inspectorOf(app).runPeriodic('outbox.purge');
    await eventually('it is purged', async () =>
      (await runsOf(stage, 'outbox.purge')).some(
        (run) => run.slot.getTime() === slot.getTime() && run.outcome === 'done',
      ),
    );
    await app.close();
  });

  it('of a job that nobody knows is refused, with those there are', async () => {
    await expect(inspector.runPeriodic('outbox.prge')).rejects.toMatchObject({
      code: 'OUTBOX_UNKNOWN_JOB',
      job: 'outbox.prge',
      message: expect.stringMatching(/^there is no job 'outbox\.prge'; there are, the nearest first: outbox\.purge, /),
    });
  });

  it('is kept by a job that is paused before it begins, until that ends', async () => {
    const jobs = { 'test.kept': noting(), 'test.beats': noting(), 'test.other': noting() };
    const providers = [
      job('test.kept', yearly, jobs['test.kept'].run),
      job('test.beats', { every: '30d' }, jobs['test.beats'].run, { parallel: true }),
      job('test.other', yearly, jobs['test.other'].run),
    ];
    const first = await stage.boot({ providers });
    await eventually('they are registered', () => stateOf(stage, 'test.beats'));
    await first.close();
    const kept = await inspector.runPeriodic('test.kept');
    const beat = await inspector.runPeriodic('test.beats');
    await stage.database.query(
      `INSERT INTO outbox.pauses (kind, name) VALUES ('job', 'test.kept'), ('job', 'test.beats')`,
    );
    const app = await stage.boot({ providers });
    await inspectorOf(app).runPeriodic('test.other');
    await ran('test.other', 1);
    expect([jobs['test.kept'].runs, jobs['test.beats'].runs]).toEqual([[], []]);
    await stage.database.query('UPDATE outbox.pauses SET ended_at = now()');
    await eventually('both are run', () => jobs['test.kept'].runs.length + jobs['test.beats'].runs.length === 2);
    expect(jobs['test.kept'].runs).toEqual([{ slot: kept, attempt: 1 }]);
    expect(jobs['test.beats'].runs).toEqual([{ slot: beat, attempt: 1 }]);
    await app.close();
  });

  it('of a paused job is refused, with the way to resume it', async () => {
    const app = await stage.boot({ providers: [job('test.paused', yearly, () => {})] });
    await inspectorOf(app).runPeriodic('test.paused');
    await ran('test.paused', 1);
    const pause = (until: string) =>
      stage.database.query(
        `INSERT INTO outbox.pauses (kind, name, reason, paused_by, until) VALUES ('job', 'test.paused', 'INC-42', 'ana', ${until})`,
      );
    await pause('NULL');
    await expect(inspector.runPeriodic('test.paused')).rejects.toMatchObject({
      code: 'OUTBOX_JOB_PAUSED',
      message: expect.stringMatching(
        /^job 'test\.paused' is paused since 2\S+Z by ana \("INC-42"\), so nothing of it is run; resume it first: npx nestjs-outbox resume --job test\.paused$/,
      ),
    });
    expect(await stateOf(stage, 'test.paused')).toMatchObject({ asked_at: null });
    await stage.database.query('UPDATE outbox.pauses SET ended_at = now()');
    // One that is over by itself stands against nothing.
    await pause(`now() - interval '1 second'`);
    await inspector.runPeriodic('test.paused');
    await ran('test.paused', 2);
    await app.close();
  });
});

describe('a run that is asked for over memory()', () => {
  const stage = useStage();

  it('is run by the one process there is, at once', async () => {
    const { runs, run } = noting();
    const app = await stage.boot({ outbox: { transport: memory() }, providers: [job('test.alone', yearly, run)] });
    const first = await inspectorOf(app).runPeriodic('test.alone');
    await overOf(stage, 'test.alone');
    const asked = performance.now();
    const second = await inspectorOf(app).runPeriodic('test.alone');
    await eventually('it is run again', () => runs.length === 2);
    expect(performance.now() - asked).toBeLessThan(2_500);
    expect(runs.map(({ slot }) => slot)).toEqual([first, second]);
    await app.close();
  });
});

describe('of several processes', () => {
  const task: JobTask = { name: 'test.asked', schedule: yearly };
  let site: JobSite;
  let desk: TestApp;
  const ask = () => inspectorOf(desk).runPeriodic('test.asked');
  const registered = () =>
    eventually('it is registered', () =>
      site.database.value<boolean>(`SELECT EXISTS (SELECT 1 FROM outbox.job_state WHERE job = 'test.asked')`),
    );
  const ended = (count: number) =>
    eventually(
      `${count} runs have ended`,
      async () => (await site.runs('test.asked')).filter((r) => r.ended).length === count,
    );

  beforeEach(async () => {
    site = await JobSite.open();
    desk = await bootApp({ url: site.database.url, outbox: { role: 'publisher' } });
  });

  afterEach(async () => {
    await desk?.close();
    await site?.close();
  });

  it('exactly one begins each run that is asked for', async () => {
    await Promise.all([0, 1, 2].map(() => site.process([task])));
    await registered();
    const slots: Date[] = [];
    for (let n = 1; n <= 10; n++) {
      slots.push(await ask());
      await ended(n);
      await eventually('its end is recorded', async () =>
        site.database.value<boolean>(`SELECT running_slot IS NULL FROM outbox.job_state WHERE job = 'test.asked'`),
      );
    }
    const runs = await site.runs('test.asked');
    expect(runs.map(({ slot, attempt }) => [slot, attempt])).toEqual(slots.map((slot) => [slot, 1]));
  });

  it('another takes it up when its process is killed, and what was asked for meanwhile comes after it', async () => {
    const first = await site.process([{ ...task, hold: true }]);
    await registered();
    const slot = await ask();
    await site.run('test.asked', 1);
    const next = await ask();
    const second = await site.process([task]);
    await first.kill();
    await ended(3);
    expect((await site.runs('test.asked')).map((run) => [run.slot, run.attempt, run.pid])).toEqual([
      [slot, 1, first.pid],
      [slot, 2, second.pid],
      [next, 1, second.pid],
    ]);
  });

  it('asked for while none lives, it is run by the one that boots', async () => {
    const first = await site.process([task]);
    await registered();
    await first.kill();
    const slot = await ask();
    await site.process([task]);
    await ended(1);
    expect(await site.runs('test.asked')).toMatchObject([{ slot, attempt: 1 }]);
  });
});
