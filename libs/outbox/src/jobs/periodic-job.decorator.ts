import type { Duration } from '../core/duration.js';
import { addMethodMetadata, type MethodMetadata } from '../core/method-metadata.js';
import type { JobContext, PerTenantOptions, TenantJobContext } from './job-context.js';

/** When a job runs: a cron expression (`CronExpression` of `@nestjs/schedule` has many), or a fixed interval. */
export type JobSchedule = string | { readonly every: Duration };

export interface PeriodicJobOptions {
  /** Default `Class.method`. All instances of one name are one job, whatever app they are in. */
  readonly name?: string;
  /** Whether it runs on every instance, without a lock, a history or retries. Default false: on exactly one. */
  readonly parallel?: boolean;
  /** The zone in which a cron expression is meant, such as `Europe/Vienna`. Default `UTC`, whatever the machine's is. */
  readonly timeZone?: string;
  /**
   * What happens when no instance was there for one slot or more: `once` runs the last one late, `skip` none. A slot that
   * is less than 10 s late counts as met. Default `once` for cron, `skip` for intervals.
   */
  readonly missed?: 'skip' | 'once';
  /** Runs the method once for each tenant of `tenancy.list`, in that tenant's transaction. Excludes `parallel`. */
  readonly perTenant?: PerTenantOptions;
  /** After this long `ctx.signal` aborts and health turns red. The lock stays held until the method ends. Default: none. */
  readonly timeout?: Duration;
  /**
   * How often a slot is run again after an attempt that threw (after 2 s, 10 s, 30 s … within 10 %) or whose process died
   * (at once). The next slot comes before a retry. Default 3.
   */
  readonly retries?: number;
}

export interface JobMetadata extends MethodMetadata {
  readonly schedule: JobSchedule;
  readonly options: PeriodicJobOptions;
}

export const jobsKey = Symbol.for('nestjs-outbox:periodic-jobs');

/** What the method of a job with these options is given. */
export type ContextOf<O> = O extends { readonly perTenant: object } ? TenantJobContext : JobContext;

/** TypeScript lets a type parameter have properties that its constraint does not know. */
type OnlyKnown<O> = { readonly [Unknown in Exclude<keyof O, keyof PeriodicJobOptions>]: never };

/**
 * Makes a method of a provider a periodic job. On exactly one instance for each slot, with an advisory lock that is held
 * while the method runs; or, with `parallel`, on every instance. A slot is run at least once and never twice at a time:
 * after a crash it is taken up again.
 *
 *     @PeriodicJob('0 3 * * *', { timeZone: 'Europe/Vienna', perTenant: { concurrency: 4 } })
 *     async renew(ctx: TenantJobContext) { … }
 *
 * It is found at bootstrap, in workers; what is wrong with it is in the report of the boot gate.
 */
export function PeriodicJob<const O extends PeriodicJobOptions = PeriodicJobOptions>(
  schedule: JobSchedule,
  options?: O & OnlyKnown<O>,
) {
  return <M extends (context: ContextOf<O>) => unknown>(
    target: object,
    method: string | symbol,
    _descriptor: TypedPropertyDescriptor<M>,
  ): void =>
    addMethodMetadata<JobMetadata>(jobsKey, '@PeriodicJob', target, method, (name) => ({
      method: name,
      schedule,
      options: options ?? {},
    }));
}
