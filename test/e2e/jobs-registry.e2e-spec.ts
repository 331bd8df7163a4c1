import { Injectable } from '@nestjs/common';
import { Cron, CronExpression, Interval, ScheduleModule, Timeout } from '@nestjs/schedule';
import { eventually } from '../support/eventually.js';
import { registryOf, stateOf } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

/** Counts how often each job ran, by app. */
function counter(app: string, counts: Map<string, number>) {
  const count = (name: string) => () =>
    void counts.set(`${name} in ${app}`, (counts.get(`${name} in ${app}`) ?? 0) + 1);
  return {
    of: (name: string) => counts.get(`${name} in ${app}`) ?? 0,
    providers: [
      job('test.cron', CronExpression.EVERY_SECOND, count('test.cron')),
      job('test.interval', { every: '100ms' }, count('test.interval')),
      job('test.parallel', { every: '100ms' }, count('test.parallel'), { parallel: true }),
      job('test.metronome', { every: '100ms' }, count('test.metronome'), { parallel: true }),
    ],
  };
}

describe.each([
  ["the app's own SchedulerRegistry", [ScheduleModule.forRoot()]],
  ['one that is loaded for an app that has none', []],
])('what is done in %s', (_, imports) => {
  const stage = useStage();
  const counts = new Map<string, number>();
  const here = counter('here', counts);
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({ providers: here.providers, imports });
    await eventually('all have run', () =>
      ['test.cron', 'test.interval', 'test.parallel'].every((name) => here.of(name) > 0),
    );
  });

  /** So often every job of this process has been looked at. */
  async function looks(count: number): Promise<void> {
    const from = here.of('test.metronome');
    for (let n = 1; n <= count; n++)
      await eventually(`tick ${n} of ${count}`, () => here.of('test.metronome') >= from + n);
  }

  /** The job has run for the last time, and does not run within so many looks. */
  async function rests(name: string, within: number): Promise<void> {
    await looks(3);
    const before = here.of(name);
    await looks(within);
    expect(here.of(name)).toBe(before);
  }

  it('shows when a job ran last: its slot', async () => {
    const cron = registryOf(app).getCronJob('test.cron');
    const state = await stateOf(stage, 'test.cron');
    expect(cron.lastDate()?.getMilliseconds()).toBe(0);
    expect(Math.abs(Number(cron.lastDate()) - Number(state?.last_slot))).toBeLessThanOrEqual(2_000);
    await eventually('the slot is that of the row', async () => {
      const row = await stateOf(stage, 'test.cron');
      return Number(cron.lastDate()) === Number(row?.last_slot);
    });
    expect(Number(cron.nextDate().toMillis())).toBeGreaterThan(Number(cron.lastDate()));
  });

  it('a cron that is stopped is not run by this process, and is again when it is started', async () => {
    const cron = registryOf(app).getCronJob('test.cron');
    expect(cron.isActive).toBe(true);
    cron.stop();
    expect(cron.isActive).toBe(false);
    await rests('test.cron', 15);
    const before = here.of('test.cron');
    cron.start();
    await eventually('it runs again', () => here.of('test.cron') > before);
    expect(cron.isActive).toBe(true);
  });

  it('one that is stopped here is run by the others', async () => {
    const cron = registryOf(app).getCronJob('test.cron');
    cron.stop();
    await looks(3);
    const there = counter('there', counts);
    const other = await stage.boot({ providers: there.providers });
    await eventually('the other process runs it', () => there.of('test.cron') >= 2);
    await other.close();
    cron.start();
  });

  it('what is deleted is not run by this process any more: cron, interval, parallel', async () => {
    const registry = registryOf(app);
    registry.deleteCronJob('test.cron');
    await rests('test.cron', 15);
    registry.deleteInterval('test.interval');
    await rests('test.interval', 5);
    registry.deleteInterval('test.parallel');
    await rests('test.parallel', 5);
    expect(registry.doesExist('cron', 'test.cron')).toBe(false);
    expect(registry.getIntervals()).toEqual(['test.metronome']);
    await app.close();
  });
});

describe("the app's own @Cron, @Interval and @Timeout beside periodic jobs", () => {
  const stage = useStage();
  let fired: string[] = [];

  @Injectable()
  class Mine {
    @Cron(CronExpression.EVERY_SECOND)
    cron(): void {
      fired.push('cron');
    }

    @Interval(300)
    interval(): void {
      fired.push('interval');
    }

    @Timeout(300)
    timeout(): void {
      fired.push('timeout');
    }
  }

  const count = (what: string) => fired.filter((one) => one === what).length;

  beforeEach(() => {
    fired = [];
  });

  it('run once each, where the app imports ScheduleModule', async () => {
    const began = performance.now();
    const app = await stage.boot({
      imports: [ScheduleModule.forRoot()],
      providers: [Mine, job('test.a', { every: '1s' }, () => {})],
    });
    await eventually('three of them', () => count('cron') >= 3);
    const seconds = (performance.now() - began) / 1_000;
    expect(count('cron')).toBeLessThanOrEqual(Math.floor(seconds) + 1);
    expect(count('interval')).toBeLessThanOrEqual(Math.floor(seconds / 0.3) + 1);
    expect(count('timeout')).toBe(1);
    expect([...registryOf(app).getCronJobs().keys()]).toHaveLength(2);
    await app.close();
  });

  it('do not run at all, where it does not', async () => {
    let ticks = 0;
    const app = await stage.boot({ providers: [Mine, job('test.b', { every: '100ms' }, () => (ticks += 1))] });
    await eventually('two seconds of jobs', () => ticks >= 20);
    expect(fired).toEqual([]);
    expect([...registryOf(app).getCronJobs().keys()]).toEqual(['outbox.purge']);
    await app.close();
    expect(app.log.lines.filter((line) => /ScheduleModule/.test(line))).toEqual([]);
  });
});
