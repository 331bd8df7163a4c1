import { AsyncLocalStorage } from 'node:async_hooks';
import type { DataSource, EntityManager } from 'typeorm';
import { CommitWatcher } from './commit-watcher.js';
import { TransactionScope } from './transaction-scope.js';

/**
 * Knows the current transaction. It wraps `manager.transaction` of the one DataSource that the module was given, never a
 * prototype, so that two apps in one process do not meet. Libraries that bring transactions to Nest (nestjs-cls,
 * typeorm-transactional) go through that method and need no adapter.
 */
export class TransactionFollower {
  private readonly storage = new AsyncLocalStorage<TransactionScope>();
  private unfollow: (() => void) | undefined;

  constructor(
    private readonly dataSource: DataSource,
    private readonly commits: CommitWatcher,
  ) {}

  current(): TransactionScope | undefined {
    return this.storage.getStore();
  }

  /** Runs `work` with `scope` as the current transaction, outside any other. */
  within<T>(scope: TransactionScope, work: () => Promise<T>): Promise<T> {
    return this.storage.run(scope, work);
  }

  follow(): void {
    if (this.unfollow) return;
    const manager = this.dataSource.manager;
    const original = manager.transaction;
    manager.transaction = this.followed(original.bind(manager) as Transaction) as EntityManager['transaction'];
    this.dataSource.subscribers.push(this.commits);
    this.unfollow = () => {
      manager.transaction = original;
      const at = this.dataSource.subscribers.indexOf(this.commits);
      if (at >= 0) this.dataSource.subscribers.splice(at, 1);
    };
  }

  stop(): void {
    this.unfollow?.();
    this.unfollow = undefined;
  }

  private followed(original: Transaction): (...args: unknown[]) => Promise<unknown> {
    return (...args) =>
      // The callback is the first or the second argument, and DataSource.transaction always passes two.
      original(
        ...args.map((arg) =>
          typeof arg === 'function' ? (manager: EntityManager) => this.inScope(manager, arg as Callback) : arg,
        ),
      );
  }

  private async inScope(manager: EntityManager, callback: Callback): Promise<unknown> {
    const runner = manager.queryRunner;
    if (!runner) return callback(manager);
    const scope = new TransactionScope(runner);
    try {
      const result = await this.storage.run(scope, () => callback(manager));
      await scope.settle();
      return result;
    } finally {
      scope.close();
    }
  }
}

type Callback = (manager: EntityManager) => Promise<unknown>;
type Transaction = (...args: unknown[]) => Promise<unknown>;
