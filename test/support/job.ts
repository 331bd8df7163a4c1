import type { Provider } from '@nestjs/common';
import {
  type JobContext,
  type JobSchedule,
  PeriodicJob,
  type PeriodicJobOptions,
  type TenantJobContext,
} from 'nestjs-outbox';

/** A provider with one periodic job, for methods that a test wants to see from inside. */
export function job<const O extends PeriodicJobOptions>(
  name: string,
  schedule: JobSchedule,
  run: (context: O extends { readonly perTenant: object } ? TenantJobContext : JobContext) => unknown,
  options?: O,
): Provider {
  class Job {
    run(context: JobContext & TenantJobContext): unknown {
      return run(context as never);
    }
  }
  const method = Object.getOwnPropertyDescriptor(Job.prototype, 'run') as TypedPropertyDescriptor<() => unknown>;
  PeriodicJob(schedule, { name, ...options })(Job.prototype, 'run', method);
  return { provide: Symbol(name), useClass: Job };
}
