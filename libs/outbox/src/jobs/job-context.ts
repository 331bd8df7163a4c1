import type { EntityManager } from 'typeorm';

interface CommonContext {
  readonly job: string;
  /** The instant for which it runs, whenever it really does. The same for every attempt, and on every instance. */
  readonly slot: Date;
  /** From 1; a slot whose attempt failed or was cut off is run again, up to `retries` times. */
  readonly attempt: number;
  readonly isLastAttempt: boolean;
  /** Aborts at the timeout, when the job's lock is lost, and when the process has no more time to drain. */
  readonly signal: AbortSignal;
  /**
   * Runs `work` for each row, one after the other, each in a transaction of its own (on another connection than
   * `ctx.manager`'s, in the same tenant). One that throws stops no other; in the end an `AggregateError` of
   * `RowFailedError` names all that failed. Stops between two rows when the signal aborts.
   */
  each<T>(rows: Iterable<T> | AsyncIterable<T>, work: (row: T, context: RowContext) => unknown): Promise<void>;
}

/** What a periodic job gets. */
export interface JobContext extends CommonContext {
  /**
   * Runs `work` once for each tenant of `tenancy.list`, in that tenant's transaction, as the option `perTenant` does:
   * who failed stops no other, an `AggregateError` of `TenantFailedError` names all in the end, and a slot that is taken
   * up again after a crash runs only the tenants it had not got to. Several calls in one run are told apart by their order.
   */
  perTenant(work: (context: TenantJobContext) => unknown, options?: PerTenantOptions): Promise<void>;
}

/** What a job with `perTenant` gets, once for each tenant. */
export interface TenantJobContext extends CommonContext {
  readonly tenantId: string;
  /** The tenant's transaction: what is written through it commits together with the note that this tenant is done. */
  readonly manager: EntityManager;
}

/** What the work of `ctx.each` gets beside its row. */
export interface RowContext {
  /** The row's own transaction. */
  readonly manager: EntityManager;
  readonly tenantId: string | null;
  readonly signal: AbortSignal;
}

export interface PerTenantOptions {
  /** Tenants at once, each on a connection of the pool. Default 1; at most the pool's size less 2. */
  readonly concurrency?: number;
}
