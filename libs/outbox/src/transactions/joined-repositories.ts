import type { DataSource, EntityManager } from 'typeorm';
import type { TransactionFollower } from './transaction-follower.js';

/**
 * Makes the DataSource's own manager, its repositories, `query` and query builders take part in the current
 * transaction: inside one they use its runner, elsewhere they are as ever.
 *
 * A root `dataSource.transaction(…)` inside another thereby becomes a savepoint of it; `outbox.outside` is the way out.
 */
export class JoinedRepositories {
  constructor(private readonly follower: TransactionFollower) {}

  join(dataSource: DataSource): void {
    const { patches } = this.follower;
    this.joinManager(dataSource.manager);
    patches.getter(dataSource.manager, 'queryRunner', () => this.runner());
    patches.method(dataSource, 'query', (original, [sql, parameters, runner]) =>
      original(sql, parameters, runner ?? this.runner()),
    );
    patches.method(dataSource, 'createQueryBuilder', (original, [entityOrRunner, alias, runner]) =>
      alias === undefined
        ? original(entityOrRunner ?? this.runner())
        : original(entityOrRunner, alias, runner ?? this.runner()),
    );
    // A repository of one's own with a manager of its own, as in `super(Invoice, dataSource.createEntityManager())`.
    patches.method(dataSource, 'createEntityManager', (original, args) => {
      const manager = original(...args) as EntityManager;
      if (args[0] === undefined) {
        patches.getterForGood(manager, 'queryRunner', () => this.runner());
        this.joinManager(manager, 'forGood');
      }
      return manager;
    });
  }

  private joinManager(manager: EntityManager, patch: 'method' | 'forGood' = 'method'): void {
    const { patches } = this.follower;
    // A repository takes down its manager's runner when it is made, and is kept: made inside a transaction, it would
    // use a dead runner ever after. `release` must not find a runner that is not its own to release.
    for (const name of ['getRepository', 'getTreeRepository', 'release'])
      patches[patch](manager, name, (original, args) => this.follower.outside(() => original(...args)));
    // These look at the runner again at their end, and release it when there is none: that of a transaction which has
    // finished meanwhile, and not committed yet. The transaction's own manager knows its runner for good.
    for (const name of ['transaction', 'clear'] as const)
      patches[patch](manager, name, (original, args) => {
        const joined = this.runner()?.manager;
        return joined ? Reflect.apply(joined[name], joined, args) : original(...args);
      });
  }

  private runner() {
    return this.follower.open()?.runner;
  }
}
