import type { JobContext, TenantJobContext } from './job-context.js';
import type { Schedule } from './schedule.js';

/** A periodic job, resolved: everything the scheduler needs. */
export interface JobDefinition {
  /** Unique in the schema: the row, the lock and the registry's entry bear it. */
  readonly name: string;
  /** `Class.method`, for people. */
  readonly where: string;
  readonly schedule: Schedule;
  /** As it was written, and where its clock stands; `undefined` for an interval. */
  readonly cron: { readonly expression: string; readonly timeZone: string } | undefined;
  /** Milliseconds between slots, for an interval. */
  readonly everyMs: number | undefined;
  readonly parallel: boolean;
  /** What becomes of slots that nobody was there for: the last of them runs late, or none does. */
  readonly missed: 'skip' | 'once';
  /** Runs once for each tenant, so many at a time; `undefined`: once. */
  readonly perTenant: number | undefined;
  readonly timeoutMs: number | undefined;
  readonly retries: number;
  /** Whether its runs are kept in `job_runs`. */
  readonly history: boolean;
  run(context: JobContext | TenantJobContext): unknown;
}
