import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import type { JobContext } from 'nestjs-outbox';
import { eventually, gate } from '../support/eventually.js';
import { job, useStage } from '../support/stage.js';

const runsTable =
  'CREATE TABLE runs (job text, slot timestamptz, attempt int, app text, at timestamptz DEFAULT clock_timestamp())';

/** Slots of a job that were run more than once, and how many were run at all. */
const countSql = 'SELECT count(*)::int AS runs, count(DISTINCT slot)::int AS slots FROM runs WHERE job = $1';

describe('only one scheduler runs a job', () => {
  const stage = useStage(runsTable);
  const note = (app: string) => async (context: JobContext) => {
    await stage.database.query('INSERT INTO runs (job, slot, attempt, app) VALUES ($1, $2, $3, $4)', [
      context.job,
      context.slot,
      context.attempt,
      app,
    ]);
  };

  it('of three instances exactly one runs each slot', async () => {
    await Promise.all(
      ['a', 'b', 'c'].map((app) => stage.boot({ providers: [job('test.tick', { every: '200ms' }, note(app))] })),
    );
    const counts = await eventually('twenty slots', async () => {
      const [row] = await stage.database.query<{ runs: number; slots: number }>(countSql, ['test.tick']);
      return row && row.slots >= 20 && row;
    });
    expect(counts.runs).toBe(counts.slots);
  });
});

describe('a parallel job takes no lock', () => {
  const stage = useStage();

  it('runs on every instance at once, and shows no advisory lock', async () => {
    const running = [gate(), gate()];
    const release = gate();
    const locks = `SELECT count(*)::int FROM pg_locks l JOIN pg_stat_activity a USING (pid)
      WHERE l.locktype = 'advisory' AND a.application_name = 'nestjs-outbox jobs' AND a.datname = current_database()`;
    for (const reached of running) {
      const beat = job(
        'test.beat',
        { every: '100ms' },
        async () => {
          reached.open();
          await release.passed;
        },
        { parallel: true },
      );
      await stage.boot({ providers: [beat] });
    }
    await Promise.all(running.map(({ passed }) => passed));
    expect(await stage.database.value(locks)).toBe(0);
    release.open();
  });
});

describe('jobs are listed in the SchedulerRegistry', () => {
  const stage = useStage();
  const providers = () => [
    job('test.nightly', '0 3 * * *', () => {}, { timeZone: 'Europe/Vienna' }),
    job('test.often', { every: '30d' }, () => {}),
  ];

  it.each([
    ["the app's own", [ScheduleModule.forRoot()]],
    ['one that is loaded for an app that has none', []],
  ])('%s', async (_, imports) => {
    const { app, close } = await stage.boot({ providers: providers(), imports });
    const registry = app.get(SchedulerRegistry, { strict: false });
    expect(registry.getCronJob('test.nightly').nextDate().toJSDate().getUTCMinutes()).toBe(0);
    expect(registry.getCronJob('test.nightly').isActive).toBe(true);
    expect(registry.getIntervals()).toContain('test.often');
    await close();
  });
});
