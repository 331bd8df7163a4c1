import type { Log } from '../core/throttled-log.js';
import type { JobAttempt } from '../tables/jobs.table.js';
import type { Entry } from './entry.js';
import type { JobLocks } from './job-locks.js';
import type { JobStarter } from './job-starter.js';
import { instant } from './run-records.js';

/**
 * How long an unfinished slot must lie with its lock free before it is anybody's: a process that lost its connection, and
 * nothing else, takes the lock again meanwhile.
 */
const confirmMs = 2_500;

/** An attempt that is not known to have ended: it runs elsewhere as long as its lock is held, else it was left behind. */
export class Unfinished {
  constructor(
    private readonly locks: JobLocks,
    private readonly starter: JobStarter,
    private readonly log: Log,
  ) {}

  /** Looks at one, takes it up when it has been free for long enough; the milliseconds until the next look, `elseMs` unless it is free. */
  async look(entry: Entry, attempt: JobAttempt, elseMs: number): Promise<number> {
    const since = sameAttempt(entry.free, attempt) ? entry.free?.since : undefined;
    if (since !== undefined && performance.now() - since >= confirmMs) {
      delete entry.free;
      await this.adopt(entry, attempt);
      return elseMs;
    }
    if (!(await this.locks.isFree(attempt.job))) {
      delete entry.free;
      return elseMs;
    }
    entry.free = { ...attempt, since: since ?? performance.now() };
    return confirmMs - (performance.now() - entry.free.since);
  }

  private async adopt(entry: Entry, { job, slot, attempt }: JobAttempt): Promise<void> {
    const { retries } = entry.definition;
    if (attempt > retries) return this.starter.giveUp(entry, { job, slot, attempt });
    await this.starter.takeUp(entry, { job, slot, attempt: attempt + 1 }, false);
    if (entry.run)
      this.log.warn(
        `job '${job}': slot ${instant(slot)} was left unfinished${attempt > 0 ? ` by attempt ${attempt}` : ''}; it is taken up again here, attempt ${attempt + 1} of ${retries + 1}`,
      );
  }
}

function sameAttempt(seen: JobAttempt | undefined, { slot, attempt }: JobAttempt): boolean {
  return seen?.slot === slot && seen.attempt === attempt;
}
