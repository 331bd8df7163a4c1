import type { Pause } from './pauses.js';

export interface JobRunInfo {
  readonly slot: Date;
  readonly attempt: number;
  readonly startedAt: Date;
  readonly finishedAt: Date | null;
  readonly outcome: 'done' | 'failed' | 'lock lost' | 'interrupted' | null;
  readonly worker: string | null;
  readonly error: string | null;
}

/** The session that holds the lock of a job. What the server does not tell of other roles' sessions is null. */
export interface JobLockInfo {
  readonly pid: number;
  readonly application: string | null;
  readonly address: string | null;
  /** When its connection was made. */
  readonly since: Date | null;
}

export interface PeriodicInfo {
  readonly job: string;
  /** As it is registered: the cron expression or interval, and the time zone. */
  readonly schedule: string;
  /** Whether it runs on every instance, without a lock; null when this process does not know the job. */
  readonly parallel: boolean | null;
  /** At most 3, by the database's clock; at most one when this process does not have the job with this schedule. */
  readonly next: readonly Date[];
  /** The last slot of the schedule that was begun; null: none yet. */
  readonly lastSlot: Date | null;
  /** The attempt that has begun and of which no end is recorded. */
  readonly running: {
    readonly slot: Date;
    readonly attempt: number;
    readonly worker: string | null;
    readonly since: Date | null;
    /**
     * Whether a session holds the lock. False: nobody runs it. Its process died, or lost that one connection; within
     * seconds the lock is taken again or the slot taken up, if a process lives that has the job.
     */
    readonly held: boolean;
  } | null;
  readonly lock: JobLockInfo | null;
  /** A slot that is to be tried again: from `at` on, or (null) as soon as somebody looks. `attempt` is the one to come. */
  readonly retry: { readonly slot: Date; readonly attempt: number; readonly at: Date | null } | null;
  /** How the last attempt ended; null while it runs, and before the first. */
  readonly outcome: JobRunInfo['outcome'];
  readonly paused: Pause | null;
  /** When one more run was asked for that has not begun, and by whom. */
  readonly askedAt: Date | null;
  readonly askedBy: string | null;
  /** Newest first, at most 10; of jobs that tick more than once a minute or on every instance the last, and those that were asked for. */
  readonly runs: readonly JobRunInfo[];
  /** When a process that has the job was last seen, to about 20 s. */
  readonly seenAt: Date;
}
