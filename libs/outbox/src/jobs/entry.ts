import type { JobAttempt } from '../tables/jobs.table.js';
import type { JobDefinition } from './job-definition.js';
import type { JobRun } from './job-run.js';

/** A job and what this process knows of it. */
export interface Entry {
  readonly definition: JobDefinition;
  run?: JobRun;
  /** Resolves when the run and its record have ended. */
  ended?: Promise<void>;
  /** Of a parallel job: the last slot begun here. */
  last?: number;
  /** An unfinished attempt whose lock was free, and since when (by `performance.now`). */
  free?: JobAttempt & { readonly since: number };
}
