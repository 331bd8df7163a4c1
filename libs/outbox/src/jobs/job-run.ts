import type { EntityManager } from 'typeorm';
import { JobTimeoutError } from '../outbox.job-errors.js';
import type { JobAttempt } from '../tables/jobs.table.js';
import type { JobContext, PerTenantOptions, RowContext, TenantJobContext } from './job-context.js';
import type { JobDefinition } from './job-definition.js';
import type { JobTransactionParts } from './job-transaction.js';
import { runRows } from './row-runner.js';
import type { TenantRunner } from './tenant-runner.js';

/** One attempt at one slot in this process: the method, its signal and its time limit. */
export class JobRun {
  /** The lock went with its connection while the method ran. */
  lockLost = false;
  /** The process stops, and its slot is others': what it still comes to is recorded nowhere. */
  left = false;
  private readonly aborter = new AbortController();
  private readonly began = performance.now();
  private parts = 0;

  constructor(
    private readonly transactions: JobTransactionParts,
    private readonly tenants: TenantRunner,
    readonly definition: JobDefinition,
    readonly attempt: JobAttempt,
  ) {}

  /** Milliseconds since it began, by this process's clock. */
  get took(): number {
    return performance.now() - this.began;
  }

  /** Asks the method to end. It may take its time: nothing but its end ends the run. */
  abort(reason: Error): void {
    this.aborter.abort(reason);
  }

  /** What the method threw, in a list of one; an empty list when it returned. */
  async execute(): Promise<readonly unknown[]> {
    const { timeoutMs, name } = this.definition;
    const limit = timeoutMs && setTimeout(() => this.timedOut(new JobTimeoutError(name, timeoutMs)), timeoutMs);
    try {
      await this.transactions.follower.outside(() => this.work());
      return [];
    } catch (error) {
      return [error];
    } finally {
      clearTimeout(limit);
    }
  }

  private timedOut(error: JobTimeoutError): void {
    this.transactions.throttled.error(`timeout ${this.definition.name}`, error.message);
    this.abort(error);
  }

  private async work(): Promise<void> {
    const { perTenant } = this.definition;
    if (perTenant === undefined) await this.definition.run(this.context());
    else await this.perTenant((context) => this.definition.run(context), { concurrency: perTenant });
  }

  private context(): JobContext {
    return { ...this.common(null), perTenant: (work, options) => this.perTenant(work, options) };
  }

  private async perTenant(work: (context: TenantJobContext) => unknown, options: PerTenantOptions = {}): Promise<void> {
    if (this.definition.parallel)
      throw new Error(
        `job '${this.definition.name}' is parallel: every instance would run every tenant; leave out parallel, or ask for the tenants yourself`,
      );
    await this.tenants.run({
      ...this.attempt,
      part: this.parts++,
      concurrency: options.concurrency ?? 1,
      signal: this.aborter.signal,
      work: (tenantId, manager) => work(this.tenantContext(tenantId, manager)),
    });
  }

  private tenantContext(tenantId: string, manager: EntityManager): TenantJobContext {
    return { ...this.common(tenantId), tenantId, manager };
  }

  private common(tenantId: string | null) {
    const { job, slot, attempt } = this.attempt;
    const { signal } = this.aborter;
    return {
      job,
      slot: new Date(slot),
      attempt,
      isLastAttempt: attempt > this.definition.retries,
      signal,
      each: <T>(rows: Iterable<T> | AsyncIterable<T>, work: (row: T, context: RowContext) => unknown) =>
        runRows(this.transactions, { job, tenantId, signal }, rows, work),
    };
  }
}
