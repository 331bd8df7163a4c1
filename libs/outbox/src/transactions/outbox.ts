import type { TransactionFollower } from './transaction-follower.js';

/** The way out of the current transaction. Inject it; class and token in one. */
export class Outbox {
  constructor(private readonly follower: TransactionFollower) {}

  /**
   * Runs `work` as if no transaction were open around it: repositories use connections of their own, `publish` throws
   * `NotInTransactionError`, a `dataSource.transaction(…)` is independent. For what has to stay when the transaction
   * rolls back, such as an audit row.
   */
  async outside<T>(work: () => Promise<T>): Promise<T> {
    return this.follower.outside(work);
  }
}
