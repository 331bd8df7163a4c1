import type { QueryRunner } from 'typeorm';
import { TransactionFinishedError } from '../outbox.errors.js';

/**
 * One transaction that the library follows: a `dataSource.transaction(…)` callback, or a handler.
 *
 *   open ── callback settles ──▶ closing (what was started is waited for) ──▶ finished (later calls reject by name)
 */
export class TransactionScope {
  /** The tenant of the event that is handled, which other connections do not have set; `undefined` outside handlers. */
  tenantId: string | null | undefined;
  private finished = false;
  private readonly pending = new Set<Promise<unknown>>();

  constructor(
    readonly runner: QueryRunner,
    /** Whose handler it is, or inside whose handler it was opened. */
    readonly durable?: string,
  ) {}

  /** Whether its callback or handler is still running. */
  get open(): boolean {
    return !this.finished;
  }

  get hasTenant(): boolean {
    return typeof this.tenantId === 'string';
  }

  /** Runs a statement of ours in the transaction; `what` names it in the error when it comes too late. */
  async take<T>(what: string, work: () => Promise<T>): Promise<T> {
    if (this.finished) throw new TransactionFinishedError(what);
    const started = work();
    this.pending.add(started);
    try {
      return await started;
    } finally {
      this.pending.delete(started);
    }
  }

  /**
   * Waits for what was started and not awaited. When one of those failed Postgres has aborted the transaction, and
   * COMMIT would answer ROLLBACK without an error: so the first failure is thrown.
   */
  async settle(): Promise<void> {
    while (this.pending.size > 0) {
      const failed = (await Promise.allSettled(this.pending)).find((r) => r.status === 'rejected');
      if (failed) throw failed.reason;
    }
  }

  close(): void {
    this.finished = true;
  }

  /**
   * Refuses what comes from now on, and waits for what was started, however it ends. Also when the callback failed: a
   * statement that is still to be sent would go out behind the ROLLBACK and commit by itself.
   */
  async finish(): Promise<void> {
    this.close();
    await this.quiet();
  }

  /** A savepoint: what was started in it is waited for before it is released or rolled back to. */
  async nested<T>(work: () => Promise<T>): Promise<T> {
    try {
      const result = await work();
      await this.settle();
      return result;
    } catch (error) {
      await this.quiet();
      throw error;
    }
  }

  private async quiet(): Promise<void> {
    while (this.pending.size > 0) await Promise.allSettled(this.pending);
  }
}
