import type { EntitySubscriberInterface, QueryRunner } from 'typeorm';
import type { Nudge } from '../core/wake-signal.js';

/**
 * Wakes the relay after the real COMMIT of a transaction that published. TypeORM tells its subscribers of a commit for
 * every released savepoint, too; only after the real one is the runner's transaction over. Hooks that are missed (a
 * raw COMMIT) cost one poll.
 */
export class CommitWatcher implements EntitySubscriberInterface {
  /** When each first published, by this process's clock. */
  private readonly published = new WeakMap<QueryRunner, number>();

  constructor(private readonly relay: Nudge) {}

  /** Remember that `runner`'s transaction has something for the relay, and since when: by `performance.now`, before it was sent. */
  note(runner: QueryRunner, since: number): void {
    if (!this.published.has(runner)) this.published.set(runner, since);
  }

  /** For commits that do not go through TypeORM: whether there was something, once. */
  committed(runner: QueryRunner): void {
    const since = this.published.get(runner);
    if (since === undefined) return;
    this.published.delete(runner);
    this.relay.nudge(performance.now() - since);
  }

  afterTransactionCommit({ queryRunner }: { queryRunner: QueryRunner }): void {
    if (!queryRunner.isTransactionActive) this.committed(queryRunner);
  }

  afterTransactionRollback({ queryRunner }: { queryRunner: QueryRunner }): void {
    if (!queryRunner.isTransactionActive) this.published.delete(queryRunner);
  }
}
