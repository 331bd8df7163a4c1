import { AsyncLocalStorage } from 'node:async_hooks';
import type { DataSource, EntityManager } from 'typeorm';
import { CommitWatcher } from './commit-watcher.js';
import { InstancePatches, type Method } from './instance-patches.js';
import { TransactionScope } from './transaction-scope.js';

/**
 * Knows the current transaction. It wraps `manager.transaction` of the one DataSource that the module was given, never a
 * prototype, so that two apps in one process do not meet. Libraries that bring transactions to Nest (nestjs-cls,
 * typeorm-transactional) go through that method and need no adapter.
 */
export class TransactionFollower {
  private readonly storage = new AsyncLocalStorage<TransactionScope | undefined>();
  private following = false;

  constructor(
    private readonly dataSource: DataSource,
    private readonly commits: CommitWatcher,
    /** What is put in place of the DataSource's own; all of it goes when following stops. */
    readonly patches = new InstancePatches(),
  ) {}

  /** Also one that has finished: what comes too late is refused by name. */
  current(): TransactionScope | undefined {
    return this.storage.getStore();
  }

  /** The current transaction, as long as its callback or handler runs. */
  open(): TransactionScope | undefined {
    const scope = this.storage.getStore();
    return scope?.open ? scope : undefined;
  }

  /** Runs `work` where no transaction is current. */
  outside<T>(work: () => T): T {
    return this.storage.run(undefined, work);
  }

  /** Runs `work` with `scope` as the current transaction, outside any other. */
  within<T>(scope: TransactionScope, work: () => Promise<T>): Promise<T> {
    this.watchNested(scope);
    return this.storage.run(scope, work);
  }

  follow(): void {
    if (this.following) return;
    this.following = true;
    this.patches.method(this.dataSource.manager, 'transaction', (original, args) => this.followed(original, args));
    this.dataSource.subscribers.push(this.commits);
  }

  stop(): void {
    if (!this.following) return;
    this.following = false;
    this.patches.undo();
    const at = this.dataSource.subscribers.indexOf(this.commits);
    if (at >= 0) this.dataSource.subscribers.splice(at, 1);
  }

  private followed(original: Method, args: unknown[]): unknown {
    // The callback is the first or the second argument, and DataSource.transaction always passes two.
    return original(
      ...args.map((arg) =>
        typeof arg === 'function' ? (manager: EntityManager) => this.inScope(manager, arg as Callback) : arg,
      ),
    );
  }

  /** A savepoint waits for the publishes that were started in it, or one would go out behind its ROLLBACK TO. */
  private watchNested(scope: TransactionScope): void {
    this.patches.forGood(scope.runner.manager, 'transaction', (original, args) =>
      original(
        ...args.map((arg) =>
          typeof arg === 'function' ? (manager: EntityManager) => scope.nested(() => (arg as Callback)(manager)) : arg,
        ),
      ),
    );
  }

  private async inScope(manager: EntityManager, callback: Callback): Promise<unknown> {
    const runner = manager.queryRunner;
    if (!runner) return callback(manager);
    const around = this.open();
    const scope = new TransactionScope(runner, around?.durable);
    scope.tenantId = around?.tenantId;
    this.watchNested(scope);
    try {
      const result = await this.storage.run(scope, () => callback(manager));
      await scope.settle();
      return result;
    } finally {
      await scope.finish();
    }
  }
}

type Callback = (manager: EntityManager) => Promise<unknown>;
