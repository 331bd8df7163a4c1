// Compiled, never run, like its neighbour.
import { CronExpression } from '@nestjs/schedule';
import {
  type JobContext,
  type JobSchedule,
  PeriodicJob,
  type PeriodicJobOptions,
  type TenantJobContext,
} from 'nestjs-outbox';

declare const given: PeriodicJobOptions;
declare const schedule: JobSchedule;

export class Jobs {
  @PeriodicJob(CronExpression.EVERY_DAY_AT_3AM, {
    timeZone: 'Europe/Vienna',
    missed: 'skip',
    timeout: '5m',
    retries: 0,
  })
  async nightly(ctx: JobContext): Promise<void> {
    ctx.slot.getTime();
    await ctx.perTenant(({ tenantId, manager }) => manager.query(tenantId), { concurrency: 2 });
    await ctx.each([1, 2], (row, { manager, tenantId }) => manager.query(String(row + (tenantId?.length ?? 0))));
  }

  @PeriodicJob({ every: '1s' }, { parallel: true })
  beat(): void {}

  @PeriodicJob('0 3 * * *', { perTenant: { concurrency: 4 } })
  async renew(ctx: TenantJobContext): Promise<void> {
    await ctx.manager.query(ctx.tenantId);
    await ctx.each(['a'], (row, { manager }) => manager.query(row));
    // @ts-expect-error a tenant has no tenants
    ctx.perTenant;
  }

  @PeriodicJob('0 3 * * *', { perTenant: {} })
  onlySome({ tenantId }: Pick<TenantJobContext, 'tenantId'>): void {
    tenantId.trim();
  }

  @PeriodicJob(schedule, given)
  fromElsewhere(ctx: JobContext): void {
    ctx.signal.throwIfAborted();
  }

  // @ts-expect-error without perTenant there is no tenant
  @PeriodicJob('0 3 * * *')
  noTenants(ctx: TenantJobContext): void {
    ctx.tenantId.trim();
  }

  // @ts-expect-error with perTenant it is given no more than a tenant's part
  @PeriodicJob('0 3 * * *', { perTenant: {} })
  tenants(ctx: JobContext): void {
    void ctx.perTenant(() => {});
  }

  // @ts-expect-error no duration
  @PeriodicJob({ every: '1 sec' })
  wrongInterval(): void {}

  // @ts-expect-error a number has no unit
  @PeriodicJob({ every: 1_000 })
  noUnit(): void {}

  // @ts-expect-error no duration
  @PeriodicJob('0 3 * * *', { timeout: '5 minutes' })
  wrongTimeout(): void {}

  // @ts-expect-error no such answer to what was missed
  @PeriodicJob('0 3 * * *', { missed: 'twice' })
  wrongMissed(): void {}

  // @ts-expect-error no option of that name
  @PeriodicJob('0 3 * * *', { retry: 3 })
  wrongOption(): void {}

  // @ts-expect-error nor beside one that there is
  @PeriodicJob('0 3 * * *', { timeout: '5m', retry: 3 })
  wrongOptionBeside(): void {}

  // @ts-expect-error what gets more than a context is no job
  @PeriodicJob('0 3 * * *')
  twoParameters(ctx: JobContext, more: string): string {
    return ctx.job + more;
  }

  // @ts-expect-error not a property
  @PeriodicJob('0 3 * * *')
  property = 1;
}
