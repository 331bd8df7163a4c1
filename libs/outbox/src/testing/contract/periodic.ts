import assert from 'node:assert/strict';
import { until } from '../probe-app.js';
import { type Contract, Crew } from './crew.js';
import type { Stage } from './stage.js';

/** Work that is done because it is time, among all processes that the transport allows. */
export function periodicJobs(contract: Contract): void {
  const apps = contract.capabilities.processes === 'many' ? ['a', 'b'] : ['a'];
  const yearly = { jobs: { yearly: { schedule: '0 0 1 1 *' } } };
  contract.api.describe('on every process', () => {
    const crew = new Crew(contract, apps);
    crew.hooks();
    crew.group('periodic', (test) => {
      test('each tick runs once among all processes', {
        jobs: { tick: { schedule: { every: '200ms' } } },
      }, async (stage) => {
        await until('ten ticks', async () => stage.jobRuns.length >= 10);
        const slots = stage.jobRuns.map(({ slot }) => slot.getTime());
        assert.equal(new Set(slots).size, slots.length);
        for (const slot of slots) assert.equal(slot % 200, 0);
      });

      test('is listed with its schedule, its next ticks and its last run', {
        jobs: { hourly: { schedule: '30 * * * *', options: { timeZone: 'Asia/Kolkata' } } },
      }, async (stage) => {
        const slot = await stage.inspector.runPeriodic(stage.job('hourly'));
        await until('it ran', async () => (await info(stage, 'hourly')).runs[0]?.outcome === 'done');
        const { schedule, next, runs, running, paused, seenAt } = await info(stage, 'hourly');
        assert.match(schedule, /30 \* \* \* \*.*Asia\/Kolkata/s);
        assert.ok(next.length >= 1 && next.length <= 3);
        // Half an hour apart from UTC.
        for (const tick of next) assert.equal(tick.getUTCMinutes(), 0);
        assert.deepEqual(runs[0]?.slot, slot);
        assert.deepEqual({ running, paused }, { running: null, paused: null });
        assert.ok(seenAt);
      });

      test('run now: one more run, with the slot that it was given', yearly, async (stage) => {
        const slot = await stage.inspector.runPeriodic(stage.job('yearly'), { by: 'anna', reason: 'audit' });
        await until('it ran', async () => stage.jobRuns.length > 0);
        await until('it is over', async () => (await info(stage, 'yearly')).askedAt === null);
        assert.deepEqual(
          stage.jobRuns.map((run) => run.slot),
          [slot],
        );
      });

      test('run now while it runs: under the same lock, one after the other', yearly, async (stage) => {
        let running = 0;
        let most = 0;
        const first = stage.gate();
        stage.work(async () => {
          most = Math.max(most, ++running);
          if (stage.jobRuns.length === 1) await first.pass();
          running -= 1;
        });
        await stage.inspector.runPeriodic(stage.job('yearly'));
        await first.reached();
        await until('it is seen running', async () => (await info(stage, 'yearly')).running !== null);
        const second = await stage.inspector.runPeriodic(stage.job('yearly'));
        first.open();
        await until('both ran', async () => stage.jobRuns.length === 2);
        assert.deepEqual(stage.jobRuns[1]?.slot, second);
        assert.equal(most, 1);
      });

      test('a run that failed is told with its error, and run again', yearly, async (stage) => {
        stage.work(({ attempt }) => {
          if (attempt === 1) throw new Error('no ink');
        });
        const slot = await stage.inspector.runPeriodic(stage.job('yearly'));
        await until('it ran twice', async () => (await info(stage, 'yearly')).runs.length === 2);
        await until('it is done', async () => (await info(stage, 'yearly')).runs[0]?.outcome === 'done');
        const [done, failed] = (await info(stage, 'yearly')).runs;
        assert.deepEqual([done?.attempt, failed?.attempt, failed?.outcome], [2, 1, 'failed']);
        assert.match(failed?.error ?? '', /no ink/);
        assert.deepEqual([done?.slot, failed?.slot], [slot, slot]);
      });

      test('a job that nobody has cannot be run', async (stage) => {
        await assert.rejects(stage.inspector.runPeriodic(stage.job('none')), { code: 'OUTBOX_UNKNOWN_JOB' });
      });
    });
  });
}

async function info(stage: Stage, job: string) {
  const found = (await stage.inspector.periodic()).find((each) => each.job === stage.job(job));
  assert.ok(found, `${job} is not listed`);
  return found;
}
