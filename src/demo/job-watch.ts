import { setTimeout as pause } from 'node:timers/promises';
import { type Cast, type JobReport, judgeJobs } from './job-promises.js';
import type { JobTally } from './job-tally.js';
import type { Show } from './show.js';

const lookEveryMs = 200;
/** When all workers are up: two slots of the slowest job, or a slot that is taken up again, are a few seconds. */
const patienceMs = 30_000;

/** Waits for the jobs, and judges them. */
export class JobWatch {
  private living: Pick<Cast, 'living' | 'at'> = { living: [], at: new Date(0) };

  constructor(
    private readonly show: Show,
    private readonly tally: JobTally,
  ) {}

  /**
   * Until all processes are up and beat, every job has been seen and nothing is left unfinished; or until a promise is
   * broken, or that takes too long.
   */
  async settled(signal: AbortSignal, tell: (awaited: string) => void): Promise<void> {
    let until = performance.now() + patienceMs;
    while (!signal.aborted && performance.now() < until) {
      this.living = { living: this.show.living(), at: await this.tally.now() };
      const { awaited, broken } = await this.report();
      const starting = this.show.pool?.complete === false;
      const [first] = starting ? ['a worker that starts'] : awaited;
      if (first === undefined || broken.length > 0) return;
      if (starting) until = performance.now() + patienceMs;
      tell(first);
      await pause(lookEveryMs, undefined, { signal }).catch(() => {});
    }
  }

  /** Once everything is stopped, nothing is awaited any more: what is missing then is broken, too. */
  async report(): Promise<JobReport> {
    const { tally, living, show } = this;
    const cast = { tenants: await tally.tenants(), killed: show.pool?.killed ?? new Set<string>(), ...living };
    const report = judgeJobs(await tally.lines(), cast);
    const { missing, twice } = await tally.renewals();
    return {
      ...report,
      broken: twice > 0 ? [...report.broken, `billing.renew: ${twice} renewals too many`] : report.broken,
      awaited: missing > 0 ? [...report.awaited, `billing.renew: ${missing} renewals are missing`] : report.awaited,
    };
  }
}
