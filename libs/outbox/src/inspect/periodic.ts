import type { Database } from '../tables/database.js';
import type { ActionOptions } from './audit.js';
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

export interface PeriodicInfo {
  readonly job: string;
  /** As it is registered: the cron expression or interval, and the time zone. */
  readonly schedule: string;
  /** At most 3; empty when this process does not know the schedule. */
  readonly next: readonly Date[];
  readonly lastSlot: Date | null;
  /** The run that holds the lock. */
  readonly running: {
    readonly slot: Date;
    readonly attempt: number;
    readonly worker: string | null;
    readonly since: Date | null;
  } | null;
  readonly paused: Pause | null;
  /** When one more run was asked for that has not begun. */
  readonly askedAt: Date | null;
  /** Newest first, at most 10; jobs that tick more than once a minute have only the last. */
  readonly runs: readonly JobRunInfo[];
  /** When a process that has the job was last seen. */
  readonly seenAt: Date;
}

export class PeriodicReader {
  constructor(private readonly database: Database) {}

  async list(): Promise<readonly PeriodicInfo[]> {
    throw new Error(`not built ${this.database.schema}`);
  }

  /** One more run, as soon as a process that has the job looks; under the same lock. Resolves to the slot it was given. */
  async run(_job: string, _options: ActionOptions = {}): Promise<Date> {
    throw new Error(`not built ${this.database.schema}`);
  }
}
