import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '../../support/eventually.js';
import type { JobTask } from '../../support/job-main.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { JobSite } from './job-site.js';

const before: JobTask = { name: 'test.tick', schedule: '* * * * * *', ms: 20 };
const after: JobTask = { ...before, schedule: '*/2 * * * * *' };
/** Every process says this often that its schedule is somebody's. */
const registersMs = 20_000;

describe('an old and a new version of one job, side by side', () => {
  let site: JobSite;

  beforeEach(async () => {
    site = await JobSite.open();
  });

  afterEach(() => site?.close());

  const ranBy = async (one: WorkerProcess) =>
    (await site.runs('test.tick')).filter(({ pid }) => pid === one.pid).length;
  const goesOn = async (one: WorkerProcess, withinMs?: number) => {
    const seen = await ranBy(one);
    await eventually('it ticks', async () => (await ranBy(one)) >= seen + 2, withinMs);
  };

  it('only the new one ticks, an old one that restarts is quiet, and ticks again when no new one was there for a minute', async () => {
    const old = await site.process([before]);
    await goesOn(old);
    const fresh = await site.process([after]);
    await goesOn(fresh);
    const last = await ranBy(old);
    const restarted = await site.process([before]);
    await goesOn(fresh);
    await goesOn(fresh);
    expect([await ranBy(old), await ranBy(restarted)]).toEqual([last, 0]);
    await restarted.stop();
    await fresh.stop();
    await pause(2_000);
    expect(await ranBy(old)).toBe(last);
    await site.database.query(`UPDATE outbox.job_state SET seen_at = clock_timestamp() - interval '61 seconds'`);
    await goesOn(old, registersMs + 20_000);
    const { runs, distinct } = await site.figures('test.tick');
    expect(runs).toBe(distinct);
  });

  it('a run of the old one is not disturbed by the new one, which goes on when it has ended', async () => {
    const old = await site.process([{ ...before, hold: true }]);
    const held = await site.run('test.tick', 1);
    const fresh = await site.process([after]);
    await pause(4_000);
    expect(await site.runs('test.tick')).toHaveLength(1);
    old.go();
    await goesOn(fresh);
    const runs = await site.runs('test.tick');
    expect(runs[0]).toMatchObject({ slot: held.slot, how: 'returned', reason: null });
    expect(runs.filter(({ attempt }) => attempt > 1)).toEqual([]);
    expect(await ranBy(old)).toBe(1);
  });

  it('what the old one left unfinished is taken up by the new one', async () => {
    const old = await site.process([{ ...before, hold: true }]);
    const held = await site.run('test.tick', 1);
    const fresh = await site.process([after]);
    await old.kill();
    await goesOn(fresh);
    expect((await site.runs('test.tick'))[1]).toMatchObject({ slot: held.slot, attempt: 2, pid: fresh.pid });
  });
});
