import { setTimeout as pause } from 'node:timers/promises';
import type { WorkerProcess } from '../../support/worker-process.js';
import { JobSite } from './job-site.js';

/** Longer runs differ in nothing but the tests' patience; JOB_SECONDS=120 is the one to run before a release. */
const seconds = Number(process.env['JOB_SECONDS'] ?? 8);
const minutes = 60_000;
/** A slot that nobody looks for in its time is over: so long no process may be slow. */
const every = 3;

describe('whole processes whose clocks are minutes apart', () => {
  let site: JobSite;

  beforeEach(async () => {
    site = await JobSite.open();
  });

  afterEach(() => site?.close());

  it(
    'run each slot of a cron of a few seconds exactly once, and miss none',
    async () => {
      const skews = [0, 7 * minutes, -7 * minutes];
      const task = { name: 'test.often', schedule: `*/${every} * * * * *`, ms: 20 };
      const processes: WorkerProcess[] = [];
      for (const skew of skews) processes.push(await site.process([task], { CLOCK_SKEW_MS: String(skew) }));
      await pause(seconds * 1_000);
      // The right one goes first: each of the wrong ones has to do without it, and the last one alone.
      for (const one of processes.slice(0, 2)) {
        await one.stop();
        await site.ticks('test.often', 2);
      }
      const figures = await site.figures('test.often', every);
      if (seconds > 60) console.log(JSON.stringify(figures));
      expect(figures.slots).toBeGreaterThan(seconds / every);
      expect(figures).toEqual({ slots: figures.slots, runs: figures.slots, distinct: figures.slots, gaps: 0 });
      const clocks = await site.witness.query<{ pid: number; off: number }>(
        'SELECT pid, round(extract(epoch FROM avg(app_clock - started)) / 60)::int AS off FROM runs GROUP BY pid',
      );
      for (const { pid, off } of clocks)
        expect(off * minutes).toBe(skews[processes.findIndex((one) => one.pid === pid)]);
    },
    (seconds + 60) * 1_000,
  );
});
