import type { EntityManager } from 'typeorm';
import { defaultLadderMs, jittered, ladderStep } from './core/backoff.js';
import type { Duration } from './core/duration.js';
import type { TransportFactory } from './core/transport.js';
import type { BootProblem } from './outbox.errors.js';
import { type Backoff, type DelayOf, OptionChecker } from './outbox.option-checker.js';

export type OutboxRole = 'all' | 'worker' | 'publisher';

export interface OutboxOptions {
  /** What this process does. `publisher` only publishes; `worker` and `all` relay and handle as well. Default `all`. */
  readonly role?: OutboxRole;
  /** What carries first deliveries. Default `postgres()`. */
  readonly transport?: TransportFactory;
  /** The outbox's schema in the database. */
  readonly schema?: {
    /** Default `outbox`. */
    readonly name?: string;
    /** `verify` refuses to boot on an unfit schema; `migrate` installs it, for tests and demos. Default `verify`. */
    readonly onStart?: 'verify' | 'migrate';
  };
  readonly tenancy?: {
    /** The tenant that `publish` writes. Default: the database's `app.tenant_id`, read on the caller's connection. */
    readonly current?: () => string | null | undefined;
    /** The tenants for which jobs with `perTenant` run; asked at each run, in a transaction without a tenant. */
    readonly list?: (manager: EntityManager) => Promise<readonly string[]>;
  };
  readonly transactions?: {
    /**
     * What becomes of repositories of the DataSource (and of everything else of it) that are used inside a transaction
     * without being of it. `guard`: an error in handlers, a warning for each call site elsewhere. `join`: they take part
     * in it. `off`: nothing, they write on another connection. Default `guard`.
     */
    readonly repositories?: 'guard' | 'join' | 'off';
  };
  readonly infrastructure?: {
    /** A direct URL for the relay's, the worker's and the lock's connections. Default: the DataSource's own. */
    readonly url?: string;
  };
  /** Defaults of every subscription; `@Subscribe` may say otherwise. */
  readonly handlers?: {
    /** Handlers at once in this process, over all durables. Default floor((pool − 2) / 2), at least 1. */
    readonly concurrency?: number;
    /**
     * Durables that this process handles, of those its modules have: names, with `*` for any part of one. So one image
     * serves several deployments. What is left out is registered all the same, and waits for a process that has it.
     * Default: all.
     */
    readonly only?: readonly string[];
    /** Durables that this process does not handle; `only` counts first. Default: none. */
    readonly except?: readonly string[];
    /** Attempts in all, the first included. Default 10. */
    readonly maxAttempts?: number;
    /** Default 2 s, 10 s, 30 s, 2 min, 10 min, 30 min, 1 h, 3 h, 6 h, each within 10 %. */
    readonly backoff?: Backoff;
    /** Default 30 s. */
    readonly timeout?: Duration;
  };
  readonly relay?: {
    /** Rows in one pass, 1 to 5,000. Default 500. */
    readonly batch?: number;
    /** How often the queue and the deliveries are looked at when nobody wakes the loops. Default 1 s. */
    readonly poll?: Duration;
    /**
     * With a broker: how often events that it lost are looked for, and how long one may be under way before it is. One that
     * is lost is delivered from the database after one to two of these, and a second or two. Default 30 s.
     */
    readonly reconcile?: Duration;
  };
  /** How long events and their marks are kept, and when what is older is looked for. The same in every process. */
  readonly retention?: {
    /**
     * A day is forgotten when all of it is older than this, so events live up to a day longer; what is not finished stays.
     * From 1 to 7 days: the ring of ten days holds this window, today, the early ids of tomorrow, and a day in which to
     * forget. It is also how long a unique key stands unless it says otherwise. Default 7 days.
     */
    readonly after?: Duration;
    /** Cron expression of the job `outbox.purge`. Default `17 * * * *`, once an hour. */
    readonly schedule?: string;
  };
  /** The largest payload, as JSON in UTF-8. Default 524,288 (512 KiB). */
  readonly maxEventBytes?: number;
  /** How long a stop waits for running handlers. Default 10 s. */
  readonly drain?: Duration;
  /** Called after a delivery became a dead letter; what it throws is logged. An error line is logged in any case. */
  readonly onDeadLetter?: (letter: DeadLetterNotice) => void | Promise<void>;
}

export interface DeadLetterNotice {
  readonly eventId: string;
  readonly durable: string;
  readonly type: string;
  readonly tenantId: string | null;
  readonly attempts: number;
  readonly error: string;
}

const known: Record<string, readonly string[]> = {
  '': [
    'role',
    'transport',
    'schema',
    'tenancy',
    'transactions',
    'infrastructure',
    'handlers',
    'relay',
    'retention',
    'maxEventBytes',
    'drain',
    'onDeadLetter',
  ],
  schema: ['name', 'onStart'],
  tenancy: ['current', 'list'],
  transactions: ['repositories'],
  infrastructure: ['url'],
  handlers: ['concurrency', 'only', 'except', 'maxAttempts', 'backoff', 'timeout'],
  relay: ['batch', 'poll', 'reconcile'],
  retention: ['after', 'schedule'],
};

/** The options, resolved once: checked, frozen, with units in the names. What was wrong with them is told by the boot gate. */
export class OutboxSettings {
  readonly problems: readonly BootProblem[];
  readonly role: OutboxRole;
  readonly transport: TransportFactory;
  readonly schema: string;
  readonly onStart: 'verify' | 'migrate';
  readonly currentTenant: () => string | null | undefined;
  readonly tenants: ((manager: EntityManager) => Promise<readonly string[]>) | undefined;
  /** Whether the app said anything about tenants; the gate then looks at the role that handlers run as. */
  readonly tenancy: boolean;
  readonly repositories: 'guard' | 'join' | 'off';
  readonly infrastructureUrl: string | undefined;
  /** `undefined`: derived from the pool. */
  readonly handlerConcurrency: number | undefined;
  readonly only: readonly string[] | undefined;
  readonly except: readonly string[];
  readonly maxAttempts: number;
  readonly backoff: DelayOf;
  readonly timeoutMs: number;
  readonly relayBatch: number;
  readonly pollMs: number;
  readonly reconcileMs: number;
  readonly retentionMs: number;
  /** As it was given: the scheduler says what is wrong with it. */
  readonly retentionSchedule: string;
  readonly maxEventBytes: number;
  readonly drainMs: number;
  readonly onDeadLetter: ((letter: DeadLetterNotice) => void | Promise<void>) | undefined;

  constructor(options: OutboxOptions, defaultTransport: TransportFactory) {
    const check = new OptionChecker();
    for (const [group, keys] of Object.entries(known))
      check.keys(group, group ? options[group as 'relay'] : options, keys);
    this.role = check.oneOf('role', options.role, ['all', 'worker', 'publisher']);
    this.transport = check.transport(options.transport, defaultTransport);
    this.schema = check.schemaName(options.schema?.name);
    this.onStart = check.oneOf('schema.onStart', options.schema?.onStart, ['verify', 'migrate']);
    this.currentTenant = check.callable('tenancy.current', options.tenancy?.current) ?? (() => undefined);
    this.tenants = check.callable('tenancy.list', options.tenancy?.list);
    this.tenancy = options.tenancy !== undefined;
    this.repositories = check.oneOf('transactions.repositories', options.transactions?.repositories, [
      'guard',
      'join',
      'off',
    ]);
    this.infrastructureUrl = options.infrastructure?.url;
    this.handlerConcurrency =
      options.handlers?.concurrency === undefined
        ? undefined
        : check.integer('handlers.concurrency', options.handlers.concurrency, 1, 1_000, 1);
    this.only = options.handlers?.only && check.durables('handlers.only', options.handlers.only);
    this.except = check.durables('handlers.except', options.handlers?.except ?? []);
    this.maxAttempts = check.integer('handlers.maxAttempts', options.handlers?.maxAttempts, 1, 1_000, 10);
    this.backoff =
      check.backoff('handlers.backoff', options.handlers?.backoff) ??
      ((attempt) => jittered(ladderStep(defaultLadderMs, attempt)));
    this.timeoutMs = check.timer('handlers.timeout', options.handlers?.timeout, 30_000);
    this.relayBatch = check.integer('relay.batch', options.relay?.batch, 1, 5_000, 500);
    this.pollMs = check.timer('relay.poll', options.relay?.poll, 1_000);
    this.reconcileMs = check.timer('relay.reconcile', options.relay?.reconcile, 30_000);
    this.retentionMs = check.days('retention.after', options.retention?.after, 1, 7, 7);
    this.retentionSchedule = options.retention?.schedule ?? '17 * * * *';
    this.maxEventBytes = check.integer('maxEventBytes', options.maxEventBytes, 1_024, 64 * 1024 * 1024, 512 * 1024);
    this.drainMs = check.timer('drain', options.drain, 10_000);
    this.onDeadLetter = check.callable('onDeadLetter', options.onDeadLetter);
    for (const problem of this.transport.problems ?? []) check.add(problem);
    this.problems = check.problems;
    Object.freeze(this);
  }
}
