import type { JobLockRow, PauseColumns, PeriodicRow, PeriodicRunRow } from '../tables/periodic.table.js';
import { jobLockKey } from '../tables/schema/schema-name.js';
import type { Pause } from './pauses.js';
import type { JobLockInfo, JobRunInfo, PeriodicInfo } from './periodic-info.js';

/** A job that this process has. */
export interface KnownJob {
  /** As `job_state` has it when the job is run by this process's version. */
  readonly schedule: string;
  readonly parallel: boolean;
  next(after: number): number;
}

/** The jobs of this process, handed over by its scheduler. */
export interface KnownJobs {
  find(job: string): KnownJob | undefined;
  /** Writes the rows of those that have none, where this process works. */
  register(): Promise<void>;
  /** Lets this process look at its jobs. */
  nudge(): void;
}

const ticksAhead = 3;
const mostRuns = 10;

/** The rows of all jobs as people see them. */
export function periodicInfos(
  states: readonly PeriodicRow[],
  runs: readonly PeriodicRunRow[],
  locks: readonly JobLockRow[],
  jobs: KnownJobs,
): PeriodicInfo[] {
  const holders = new Map(locks.map((row) => [row.key, row]));
  return states.map((row) => {
    const lock = holders.get(jobLockKey(row.job) >>> 0);
    return {
      job: row.job,
      schedule: row.schedule,
      ...ahead(row, jobs.find(row.job)),
      // A new row begins with the moment at which it was made, which is no slot.
      lastSlot: row.started_at === null ? null : new Date(row.last_slot),
      ...underWay(row, lock !== undefined),
      lock: lock ? lockInfo(lock) : null,
      outcome: row.outcome,
      paused: pauseOf(row.job, row),
      askedAt: date(row.asked_at),
      askedBy: row.asked_by,
      runs: lastRuns(
        row,
        runs.filter(({ job }) => job === row.job),
      ),
      seenAt: new Date(row.seen_at),
    };
  });
}

export function pauseOf(job: string, row: PauseColumns): Pause | null {
  const { pause, reason, paused_by, since, until } = row;
  if (pause === null) return null;
  return { id: pause, kind: 'job', name: job, since: new Date(since ?? 0), until: date(until), by: paused_by, reason };
}

function ahead(row: PeriodicRow, known: KnownJob | undefined): Pick<PeriodicInfo, 'parallel' | 'next'> {
  const parallel = known?.parallel ?? null;
  if (known && known.schedule === row.schedule)
    return { parallel, next: ticks(known, Math.max(row.last_slot, row.now)) };
  const { next_slot, now } = row;
  return { parallel, next: next_slot !== null && next_slot > now ? [new Date(next_slot)] : [] };
}

function ticks(known: KnownJob, after: number): Date[] {
  const found: Date[] = [];
  try {
    for (let slot = after; found.length < ticksAhead; found.push(new Date(slot))) slot = known.next(slot);
  } catch {
    // Of what comes on 29 February the third may be further ahead than anybody looks.
  }
  return found;
}

/** An attempt whose end is recorded and whose slot goes on was interrupted by a stop, and is anybody's. */
function underWay(row: PeriodicRow, held: boolean): Pick<PeriodicInfo, 'running' | 'retry'> {
  const { running_slot, retry_at, attempt, worker } = row;
  if (running_slot === null) return { running: null, retry: null };
  const slot = new Date(running_slot);
  if (retry_at !== null || row.finished_at !== null)
    return { running: null, retry: { slot, attempt: attempt + 1, at: date(retry_at) } };
  return { running: { slot, attempt, worker, since: date(row.started_at), held }, retry: null };
}

/** The last one is in the row itself, too: what has no history has that. */
function lastRuns(row: PeriodicRow, kept: readonly PeriodicRunRow[]): JobRunInfo[] {
  const runs = kept.map(runInfo);
  const { started_at, running_slot, last_slot, outcome, attempt } = row;
  const known = kept.some((run) => started_at !== null && run.started_at >= started_at);
  if (started_at === null || known || (outcome === null && running_slot === null)) return runs;
  const slot = running_slot ?? last_slot;
  const error = outcome === null ? null : row.error;
  const last = runInfo({ ...row, slot, attempt: Math.max(1, attempt), started_at, error });
  return [last, ...runs].slice(0, mostRuns);
}

function runInfo(row: Omit<PeriodicRunRow, 'job'>): JobRunInfo {
  const { slot, attempt, outcome, worker, error } = row;
  const startedAt = new Date(row.started_at);
  return { slot: new Date(slot), attempt, startedAt, finishedAt: date(row.finished_at), outcome, worker, error };
}

function lockInfo({ pid, application, address, since }: JobLockRow): JobLockInfo {
  return { pid, application, address, since: date(since) };
}

function date(moment: number): Date;
function date(moment: number | null): Date | null;
function date(moment: number | null): Date | null {
  return moment === null ? null : new Date(moment);
}
