import type { PoolClient } from 'pg';
import type { EntityManager, QueryRunner } from 'typeorm';
import { errorCode } from '../core/database-errors.js';
import { withDeadline } from '../core/deadline.js';
import {
  NestedTransactionLeftOpenError,
  SwallowedSqlError,
  TransactionEndedByHandlerError,
  TransactionFinishedError,
} from '../outbox.errors.js';
import type { Database } from '../tables/database.js';
import { destroy } from '../tables/infrastructure-connection.js';
import { type BatchError, type BatchResult, sendBatch } from '../tables/wire/batch.js';
import {
  begin,
  commit,
  handlerDepth,
  releaseSavepoint,
  rollback,
  rollbackToSavepoint,
  savepoint,
} from '../tables/wire/control.js';
import type { Bound } from '../tables/wire/statement.js';
import type { TransactionFollower } from './transaction-follower.js';
import { TransactionScope } from './transaction-scope.js';

/** A library message on the application's pool may take this long; the claim bounds its own lock waits at 300 ms. */
const messageMs = 10_000;
/** How long to wait for a connection of the pool before the delivery is tried again later. */
const poolMs = 10_000;

/**
 * The library's own transaction around one handler, on a TypeORM runner, with the proof of its COMMIT.
 *
 *   begin+claim+savepoint ──▶ handler ──▶ seal ──▶ release savepoint, COMMIT ──▶ tag is COMMIT: proved
 *                                           │              └─ refused: [ROLLBACK][record]
 *                                           └─ error: [ROLLBACK TO][record][COMMIT], or [ROLLBACK][record]
 *
 * TypeORM believes to be at depth 1000 with the savepoint `typeorm_999` below: `manager.save()` opens nothing,
 * `manager.transaction()` becomes a savepoint, and a stray `commitTransaction()` releases our savepoint instead of
 * sending COMMIT. With the true depth the first stray call would commit the mark in the middle of the handler.
 */
export class HandlerTransaction {
  readonly scope: TransactionScope;
  private lost: Error | undefined;
  private sealed = false;
  private readonly onLost = (error?: Error): void => {
    this.lost ??= error ?? new Error('Connection terminated');
  };

  private constructor(
    private readonly runner: InternalRunner,
    private readonly client: PoolClient,
    private readonly durable: string,
  ) {
    this.scope = new TransactionScope(runner, durable);
    // The connection is in our transaction: in the pool's hands its next user would write into that, unknowingly.
    runner.release = () => Promise.reject(new TransactionEndedByHandlerError(durable));
    client.on('error', this.onLost);
    client.on('end', this.onLost);
  }

  static async open(database: Database, durable: string): Promise<HandlerTransaction> {
    const runner = database.dataSource.createQueryRunner('master') as InternalRunner;
    const connecting = database.clientOf(runner);
    try {
      return new HandlerTransaction(runner, await withDeadline('the connection pool', poolMs, connecting), durable);
    } catch (error) {
      // A connection that comes too late still has to go back.
      connecting.then(() => runner.release()).catch(() => {});
      throw error;
    }
  }

  get manager(): EntityManager {
    return this.runner.manager;
  }

  /** Whether the connection ended by itself (or by the server) since the transaction was opened. */
  get connectionLost(): Error | undefined {
    return this.lost;
  }

  /** BEGIN, the claim and the savepoint: one message. */
  async begin<Row>(claim: Bound<Row>): Promise<BatchResult<Row>> {
    const [, claimed] = await this.send(begin, claim, savepoint);
    this.runner.isTransactionActive = true;
    this.runner.transactionDepth = handlerDepth;
    return claimed;
  }

  /**
   * Runs `work` with this as the current transaction, waits for publishes that it did not await, lets TypeORM's
   * subscribers object, and lets nothing of it in afterwards.
   */
  enclose(follower: TransactionFollower, tenantId: string | null, work: () => Promise<unknown>): Promise<void> {
    return follower.within(this.scope, async () => {
      this.scope.tenantId = tenantId;
      try {
        await work();
        await this.scope.settle();
        await this.runner.broadcaster.broadcast('BeforeTransactionCommit');
        await this.scope.settle();
      } finally {
        await this.scope.finish();
      }
    });
  }

  /** From here nothing of the handler gets through its manager; throws when it left a nested transaction open. */
  seal(): void {
    if (this.sealed) return;
    this.sealed = true;
    this.scope.close();
    const refuse = () => Promise.reject(new TransactionFinishedError(`a query of the handler of '${this.durable}'`));
    this.runner.query = refuse;
    this.runner.stream = refuse;
    if (this.runner.transactionDepth !== handlerDepth) throw new NestedTransactionLeftOpenError(this.durable);
  }

  /** Commits and proves it by the command tag; a promise that resolves proves nothing. */
  async commit(): Promise<void> {
    try {
      const [, done] = await this.send(releaseSavepoint, commit);
      if (done.command !== 'COMMIT') throw new SwallowedSqlError(this.durable);
    } catch (error) {
      throw this.named(error);
    }
  }

  /** After the fact: what subscribers throw now changes nothing, and is returned to be logged. */
  async announceEnd(event: 'AfterTransactionCommit' | 'AfterTransactionRollback'): Promise<unknown> {
    try {
      this.runner.isTransactionActive = false;
      await withDeadline(`a subscriber's ${event}`, messageMs, this.runner.broadcaster.broadcast(event));
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Undoes the handler's work, records what came of it in the same transaction, and commits that. */
  async recordInside<Row>(record: Bound<Row>): Promise<BatchResult<Row>> {
    const [, recorded, done] = await this.send(rollbackToSavepoint, record, commit);
    if (done.command !== 'COMMIT') throw new Error(`COMMIT answered ${done.command}`);
    return recorded;
  }

  /** Ends the transaction whatever its state, and records afterwards, in a transaction of the records' own. */
  async recordAfter(...records: readonly [...Bound[], Bound]): Promise<BatchResult<unknown>> {
    const results = await this.send(rollback, ...records);
    return results[results.length - 1] as BatchResult<unknown>;
  }

  /** Commits the claim alone (the row is gone, no handler ran). */
  async commitClaim(): Promise<void> {
    await this.send(commit);
  }

  /** Ends the connection without asking anybody. */
  abandon(): void {
    this.lost ??= new Error('nestjs-outbox: abandoned');
    destroy(this.client);
  }

  /** Gives the connection back, or ends it when its state is not known to be clean. */
  async release(clean: boolean): Promise<void> {
    this.scope.close();
    this.client.off('error', this.onLost);
    this.client.off('end', this.onLost);
    this.runner.isTransactionActive = false;
    this.runner.transactionDepth = 0;
    const idle = this.client.getTransactionStatus() === 'I';
    await this.runner.releasePostgresConnection(
      clean && idle && !this.lost ? undefined : (this.lost ?? new Error('nestjs-outbox: not clean')),
    );
  }

  private send<const S extends readonly Bound[]>(...statements: S) {
    return withDeadline('the handler connection', messageMs, sendBatch(this.client, statements), () =>
      destroy(this.client),
    );
  }

  private named(error: unknown): unknown {
    if ((error as BatchError).statement !== 0) return error;
    switch (errorCode(error)) {
      case '25P02':
        return new SwallowedSqlError(this.durable);
      case '25P01':
      case '3B001':
        return new TransactionEndedByHandlerError(this.durable);
      default:
        return error;
    }
  }
}

/** What TypeORM's PostgresQueryRunner has and its types keep to itself. */
type InternalRunner = QueryRunner & {
  isTransactionActive: boolean;
  transactionDepth: number;
  releasePostgresConnection(error?: Error): Promise<void>;
};
