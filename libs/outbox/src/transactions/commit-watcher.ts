import type { EntitySubscriberInterface, QueryRunner } from 'typeorm';
import type { Nudge } from '../core/wake-signal.js';

/**
 * Wakes the relay after the real COMMIT of a transaction that published. TypeORM tells its subscribers of a commit for
 * every released savepoint, too; only after the real one is the runner's transaction over. Hooks that are missed (a
 * raw COMMIT) cost one poll.
 */
export class CommitWatcher implements EntitySubscriberInterface {
  private readonly published = new WeakSet<QueryRunner>();

  constructor(private readonly relay: Nudge) {}

  /** Remember that `runner`'s transaction has something for the relay. */
  note(runner: QueryRunner): void {
    this.published.add(runner);
  }

  /** For commits that do not go through TypeORM: whether there was something, once. */
  committed(runner: QueryRunner): void {
    if (this.published.delete(runner)) this.relay.nudge();
  }

  afterTransactionCommit({ queryRunner }: { queryRunner: QueryRunner }): void {
    if (!queryRunner.isTransactionActive) this.committed(queryRunner);
  }

  afterTransactionRollback({ queryRunner }: { queryRunner: QueryRunner }): void {
    if (!queryRunner.isTransactionActive) this.published.delete(queryRunner);
  }
}
