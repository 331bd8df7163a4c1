import { AsyncLocalStorage } from 'node:async_hooks';
import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import type { Log } from '../core/throttled-log.js';
import { type Stray, StrayWriteError } from '../outbox.errors.js';
import { callerOf, callSite } from './call-site.js';
import type { InstancePatches, Method } from './instance-patches.js';
import { onlyReads } from './raw-sql.js';
import type { TransactionFollower } from './transaction-follower.js';
import type { TransactionScope } from './transaction-scope.js';

/** Methods that take their connection only after an `await`, when the caller's frame is gone; all of them write. */
const deferred = ['save', 'remove', 'softRemove', 'recover', 'clear'];

/**
 * Finds what is done beside the transaction it is called in: an injected repository, `dataSource.query`, a query
 * builder that nobody gave a runner. Every such way ends where TypeORM takes a connection of its own accord, and it
 * does so in few places:
 *
 *   manager.save, remove, …        asked at the method itself, while the caller is on the stack
 *   dataSource.query               asked at the method itself, where the statement can be read
 *   every query builder            obtainQueryRunner → dataSource.createQueryRunner; a mode is named for reads only
 *   managers made before we came   EntityPersistExecutor.execute, EntityManager.clear → dataSource.createQueryRunner
 *
 * Whoever else calls `createQueryRunner` or `transaction` wants a connection of its own and says so: that is no stray.
 */
export class StrayGuard {
  /** Set inside a call that has been judged already. */
  private readonly judged = new AsyncLocalStorage<true>();
  private readonly warned = new Set<string>();

  constructor(
    private readonly follower: TransactionFollower,
    /** Whether reads beside a handler's transaction are strays even for events without a tenant. */
    private readonly tenancy: boolean,
    private readonly log: Log,
  ) {}

  watch(dataSource: DataSource): void {
    const { patches } = this.follower;
    for (const name of deferred) patches.method(dataSource.manager, name, this.write(dataSource.manager, name));
    patches.method(dataSource.manager, 'transaction', (original, args, self) => {
      this.independent(self);
      return original(...args);
    });
    patches.method(dataSource, 'query', (original, args, self) => {
      // Others (typeorm-transactional) make `manager` their transaction's and take the runner from there.
      const runner = args[2] ?? dataSource.manager.queryRunner;
      const scope = runner ? undefined : this.scope();
      if (!scope) return original(...args);
      return this.judge(scope, onlyReads(args[0]) ? 'read' : 'write', 'DataSource.query', self, () =>
        original(...args),
      );
    });
    patches.method(dataSource, 'createQueryRunner', (original, args, self) => {
      const scope = this.scope();
      const taker = scope && implicit(callerOf(self));
      if (scope && taker) this.found(scope, taker.reads && args[0] !== undefined ? 'read' : 'write', taker.name, self);
      return original(...args);
    });
    // Repositories of one's own are often made as `super(Invoice, dataSource.createEntityManager())`.
    patches.method(dataSource, 'createEntityManager', (original, args) => {
      const manager = original(...args) as EntityManager;
      if (args[0] === undefined) for (const name of deferred) patches.forGood(manager, name, this.write(manager, name));
      return manager;
    });
    this.loadLazily(dataSource, patches);
  }

  /**
   * A lazy relation remembers the runner of the query that loaded its entity. One without (`new Invoice()`, or loaded
   * before the transaction) cannot be told which to use, so it uses the transaction it is read in.
   */
  private loadLazily(dataSource: DataSource, patches: InstancePatches): void {
    patches.method(dataSource.relationLoader, 'load', (original, [relation, entities, runner, ...rest]) => {
      const given = runner as QueryRunner | undefined;
      const taken = given && !given.isReleased ? given : this.follower.open()?.runner;
      return original(relation, entities, taken, ...rest);
    });
  }

  private write(manager: EntityManager, name: string) {
    return (original: Method, args: unknown[], self: Method): unknown => {
      const scope = manager.queryRunner ? undefined : this.scope();
      if (!scope) return original(...args);
      return this.judge(scope, 'write', `EntityManager.${name}`, self, () => original(...args));
    };
  }

  private scope(): TransactionScope | undefined {
    const scope = this.follower.open();
    return scope && !this.judged.getStore() ? scope : undefined;
  }

  /** For methods that answer with a promise: they reject, and what they call on the way is not asked again. */
  private judge(scope: TransactionScope, kind: Stray['kind'], name: string, self: Method, go: () => unknown): unknown {
    try {
      this.found(scope, kind, name, self);
    } catch (error) {
      return Promise.reject(error);
    }
    return this.judged.run(true, go);
  }

  private found(scope: TransactionScope, kind: Stray['kind'], name: string, self: Method): void {
    const { durable } = scope;
    if (kind === 'read' && (durable === undefined || !(this.tenancy || scope.hasTenant))) return;
    const site = callSite(self);
    const stray = { called: site?.called ?? name, kind, durable, file: site?.file, line: site?.line };
    if (durable !== undefined) throw new StrayWriteError(stray);
    this.once(`${site?.file}:${site?.line}:${site?.column}:${name}`, () => new StrayWriteError(stray).message);
  }

  /** `dataSource.transaction(…)` in a handler is a transaction of its own: allowed, and often not what was meant. */
  private independent(self: Method): void {
    const durable = this.scope()?.durable;
    if (durable === undefined) return;
    const site = callSite(self);
    const place = site ? `${site.file}:${site.line}` : 'an unknown place';
    this.once(
      `${place}:${site?.column}:transaction`,
      () =>
        `dataSource.transaction(…) at ${place}, inside the handler of '${durable}', is a transaction of its own: what is ` +
        'written and published in it stays and goes out even if the handler fails. For a part of the handler’s ' +
        'transaction use ctx.manager.transaction(…); when it is meant to be apart, call it inside outbox.outside(() => …).',
    );
  }

  private once(key: string, message: () => string): void {
    if (this.warned.has(key)) return;
    this.warned.add(key);
    this.log.warn(message());
  }
}

/** Whether TypeORM takes a connection here because none was given, and not because somebody asked for one. */
function implicit(caller: string): { readonly name: string; readonly reads: boolean } | undefined {
  const [type = '', method] = caller.split('.');
  if (method === 'obtainQueryRunner') return { name: type, reads: true };
  if (method === 'execute' && type === 'EntityPersistExecutor') return { name: 'EntityManager.save', reads: false };
  if (method === 'clear' && type.endsWith('EntityManager')) return { name: 'EntityManager.clear', reads: false };
  return undefined;
}
