import type { JobSchedule } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { missed, runsOf, stateOf, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';

const name = (schedule: JobSchedule) =>
  `test.${typeof schedule === 'string' ? schedule.replaceAll(/[^\w]/g, '-') : schedule.every}`;

describe('the history of jobs', () => {
  const stage = useStage();
  const kept = [yearly, '* * * * *', '@hourly', '0 0,1 * * * ', { every: '1m' }, { every: '90d' }] as const;
  const notKept = ['* * * * * *', '*/30 * * * * *', '0,59 0 0 * * *', { every: '59s' }, { every: '1s' }] as const;

  it('is kept of those that come once a minute at most, and not of those that come more often', async () => {
    const ran = new Set<string>();
    const providers = () =>
      [...kept, ...notKept].map((schedule) =>
        job(name(schedule), schedule, () => void ran.add(name(schedule)), { missed: 'once' }),
      );
    const first = await stage.boot({ providers: providers() });
    for (const schedule of [...kept, ...notKept]) await missed(stage, name(schedule));
    const all = [...kept, ...notKept].map(name);
    await eventually('each has run, and its end is known', async () => {
      const states = await Promise.all(all.map((which) => stateOf(stage, which)));
      return ran.size === all.length && states.every((state) => state?.outcome === 'done');
    });
    await first.close();
    for (const schedule of kept) {
      const [run] = await runsOf(stage, name(schedule));
      expect({ schedule, ...run }).toMatchObject({ schedule, attempt: 1, outcome: 'done', error: null });
      expect(run?.finished_at).not.toBeNull();
    }
    for (const schedule of notKept) expect(await runsOf(stage, name(schedule))).toEqual([]);
  });

  it('of a parallel job there is none; its last state is kept, by whichever instance', async () => {
    let broken = false;
    const ran: [app: string, slot: number][] = [];
    const beat = (app: string) =>
      job(
        'test.parallel',
        { every: '100ms' },
        ({ slot, attempt, isLastAttempt }) => {
          ran.push([app, Number(slot)]);
          expect({ attempt, isLastAttempt }).toEqual({ attempt: 1, isLastAttempt: true });
          if (broken) throw new Error('the parallel one is broken');
        },
        { parallel: true },
      );
    const daily = job('test.parallel-daily', yearly, () => {}, { parallel: true });
    const apps = await Promise.all(['a', 'b'].map((app) => stage.boot({ providers: [beat(app), daily] })));
    const state = (outcome: string) =>
      eventually(`the state is ${outcome}`, async () => {
        const row = await stateOf(stage, 'test.parallel');
        return row?.outcome === outcome && row;
      });
    const done = await state('done');
    expect(done).toMatchObject({ last_error: null, running_slot: null, attempt: 0, retry_at: null });
    expect(Number(done.last_slot) % 100).toBe(0);
    expect(Number(done.finished_at)).toBeGreaterThanOrEqual(Number(done.started_at));
    await eventually('both run the same slots', () => {
      const [a, b] = ['a', 'b'].map((app) => ran.filter(([by]) => by === app).map(([, slot]) => slot));
      return a && b && a.filter((slot) => b.includes(slot)).length >= 3;
    });
    broken = true;
    // A change is written at once, by each of them.
    const failed = await state('failed');
    expect(failed.last_error).toContain('the parallel one is broken');
    broken = false;
    expect(await state('done')).toMatchObject({ last_error: null });
    const told = apps.flatMap(({ log }) =>
      log.matching(/job 'test\.parallel' failed here at slot .*: the parallel one is broken/),
    );
    expect(told).not.toEqual([]);
    // What has not run has no state.
    expect(await stateOf(stage, 'test.parallel-daily')).toMatchObject({ outcome: null });
    for (const which of ['test.parallel', 'test.parallel-daily']) expect(await runsOf(stage, which)).toEqual([]);
    for (const app of apps) await app.close();
  });
});
