import type { DiscoveryService } from '@nestjs/core';
import type { DataSource } from 'typeorm';
import { type BootContext, works } from './boot/boot-check.js';
import { ConsumerService } from './consume/consumer.service.js';
import { DeadLetterAlert } from './consume/dead-letter-alert.js';
import { DeliveryHandler } from './consume/delivery-handler.js';
import { DeliveryRecords } from './consume/delivery-records.js';
import { LateRecorder } from './consume/late-recorder.js';
import { SubscriptionExplorer } from './consume/subscription.explorer.js';
import { SubscriptionRegistry } from './consume/subscription.registry.js';
import { Floor } from './core/floor.js';
import { ProviderScan } from './core/provider-scan.js';
import { type Log, ThrottledLog } from './core/throttled-log.js';
import { both, type Nudge, WakeSignal } from './core/wake-signal.js';
import { WorkerIdentity } from './core/worker-identity.js';
import type { EventPublisher } from './events/event-publisher.js';
import type { KnownEvents } from './events/known-events.js';
import { OutboxPublisher } from './events/outbox-publisher.js';
import { OutboxHealth } from './inspect/health.service.js';
import { JobRegistry } from './jobs/job.registry.js';
import { JobLocks } from './jobs/job-locks.js';
import { addLibraryJob } from './jobs/library-job.js';
import type { Registry } from './jobs/listed-jobs.js';
import { PeriodicJobExplorer } from './jobs/periodic-job.explorer.js';
import { RunRecords } from './jobs/run-records.js';
import { SchedulerService } from './jobs/scheduler.service.js';
import { TenantRunner } from './jobs/tenant-runner.js';
import { appName, OutboxLifecycle } from './outbox.lifecycle.js';
import type { OutboxSettings } from './outbox.options.js';
import { BackfillService } from './recover/backfill.service.js';
import { DeadLetters } from './recover/dead-letters.service.js';
import { Durables } from './recover/durables.service.js';
import { SweepService } from './recover/sweep.service.js';
import { TakerService } from './recover/taker.service.js';
import { WorkerLockService } from './recover/worker-lock.service.js';
import { ListenerService } from './relay/listener.service.js';
import { Notifier } from './relay/notifier.js';
import { RelayService } from './relay/relay.service.js';
import { Purge } from './retention/purge.js';
import { Database } from './tables/database.js';
import type { InfrastructureConnection } from './tables/infrastructure-connection.js';
import { CommitWatcher } from './transactions/commit-watcher.js';
import { JoinedRepositories } from './transactions/joined-repositories.js';
import { Outbox } from './transactions/outbox.js';
import { RunnerQueue } from './transactions/runner-queue.js';
import { StrayGuard } from './transactions/stray-guard.js';
import { TransactionFollower } from './transactions/transaction-follower.js';

export interface WiringInput {
  readonly settings: OutboxSettings;
  readonly dataSource: DataSource;
  readonly catalog: KnownEvents;
  readonly discovery: DiscoveryService;
  /** Counted at bootstrap, when all modules are there. */
  readonly roots: () => number;
  /** Nest's list of scheduled jobs, asked for when the app is up. */
  readonly scheduled: () => Promise<Registry>;
  readonly log: Log;
}

/** What the module provides. */
export interface OutboxParts {
  readonly outbox: Outbox;
  readonly publisher: EventPublisher;
  readonly deadLetters: DeadLetters;
  readonly durables: Durables;
  readonly health: OutboxHealth;
  readonly lifecycle: OutboxLifecycle;
}

/** What every part stands on: made first, once per app; nothing is shared between two apps in one process. */
class Foundation {
  readonly database: Database;
  readonly identity = new WorkerIdentity();
  readonly wakeRelay = new WakeSignal();
  readonly floor = new Floor();
  /** What was just committed is for this process's relay, however long ago it was written. */
  readonly relay: Nudge = {
    nudge: (ageMs = 0) => {
      this.floor.reach(ageMs);
      this.wakeRelay.nudge();
    },
  };
  readonly wakeTaker = new WakeSignal();
  readonly commits: CommitWatcher;
  readonly follower: TransactionFollower;
  /** Shared by the taker, the sweep, the back-fill and health: short statements that take turns. */
  readonly connection: InfrastructureConnection;
  /** Where several processes work, each hears of the others. */
  readonly listener: ListenerService | undefined;
  readonly notifier: Notifier;
  /** This process's taker, and those of others. */
  readonly wakeTakers: Nudge;

  constructor({ dataSource, settings, log }: WiringInput) {
    this.database = new Database(dataSource, settings.schema, settings.infrastructureUrl);
    const { database, wakeTaker } = this;
    // NOTIFY takes a transaction number; nothing is lost when a crash forgets its commit.
    this.connection = works(settings)
      ? database.infrastructure('worker', log)
      : database.infrastructure('publisher', log, ['SET synchronous_commit = off']);
    const many = settings.transport.capabilities.processes === 'many';
    this.listener = works(settings) && many ? new ListenerService(database, this.relay, wakeTaker, log) : undefined;
    this.notifier = new Notifier(database, this.listener?.connection ?? this.connection, log);
    const alone = works(settings) && !many;
    this.wakeTakers = alone ? wakeTaker : both(wakeTaker, this.notifier.deliveries);
    // Who relays by himself needs nobody else for it.
    this.commits = new CommitWatcher(works(settings) ? this.relay : this.notifier.queue);
    this.follower = new TransactionFollower(dataSource, this.commits);
    this.follower.follow();
    const { repositories, tenancy } = settings;
    if (repositories !== 'off') new StrayGuard(this.follower, tenancy, log).watch(dataSource);
    // Over the guard, which then finds what could not be joined.
    if (repositories === 'join') new JoinedRepositories(this.follower).join(dataSource);
  }
}

/** Builds one outbox. */
export function wire(input: WiringInput): OutboxParts {
  const { settings } = input;
  const base = new Foundation(input);
  const { database, follower, commits } = base;
  const purge = new Purge(database, settings, input.log);
  const jobs = new JobRegistry();
  addLibraryJob(jobs, {
    name: 'outbox.purge',
    where: 'retention.schedule',
    expression: settings.retentionSchedule,
    run: ({ signal }) => purge.run(signal),
  });
  return {
    outbox: new Outbox(follower),
    publisher: new OutboxPublisher({
      database,
      settings,
      follower,
      commits,
      runners: new RunnerQueue(),
      known: input.catalog,
    }),
    deadLetters: new DeadLetters(database, base.wakeTakers),
    durables: new Durables(database, input.log),
    lifecycle: lifecycle(input, base, new SubscriptionRegistry(), jobs),
    health: new OutboxHealth(
      database,
      base.connection,
      works(settings) ? base.identity : undefined,
      settings.pollMs,
      () => base.listener?.listening ?? null,
    ),
  };
}

function lifecycle(
  input: WiringInput,
  base: Foundation,
  registry: SubscriptionRegistry,
  jobs: JobRegistry,
): OutboxLifecycle {
  const { settings, log } = input;
  const { database, identity, connection, wakeRelay, wakeTaker, wakeTakers, notifier, listener } = base;
  const recorder = new LateRecorder(database, identity, wakeTaker, log);
  const consumer = new ConsumerService(deliveryHandler(input, base, recorder), recorder, identity, wakeTaker, log);
  const transport = settings.transport.create();
  const exclusive = transport.capabilities.processes === 'one';
  const providers = new ProviderScan(input.discovery);
  return new OutboxLifecycle({
    context: bootContext(input, base, registry, jobs),
    explorers: [
      new SubscriptionExplorer(providers, settings, registry, input.catalog),
      new PeriodicJobExplorer(providers, settings, jobs),
    ],
    follower: base.follower,
    connection,
    transport,
    lock: new WorkerLockService(database, identity, appName(), exclusive, consumer, wakeTaker, log),
    consumer,
    recorder,
    relay: new RelayService(
      database,
      settings,
      transport,
      base.floor,
      identity,
      wakeRelay,
      wakeTaker,
      notifier.deliveries,
      log,
    ),
    taker: new TakerService(database, connection, consumer, identity, settings, wakeTaker, log),
    others: [
      new SweepService(database, connection, consumer, identity, wakeTakers, log),
      new BackfillService(database, connection, consumer, wakeTakers, log),
    ],
    listener,
    notifier,
    scheduler: scheduler(input, base),
    scheduled: input.scheduled,
    log,
  });
}

function scheduler({ settings, log }: WiringInput, base: Foundation): SchedulerService {
  const { database, follower, commits, identity } = base;
  const connection = database.infrastructure('jobs', log, [], { lost: () => service.lost() });
  const transactions = { database, follower, commits, throttled: new ThrottledLog(log) };
  const service: SchedulerService = new SchedulerService(
    {
      connection,
      locks: new JobLocks(database, connection),
      records: new RunRecords(database, connection, log),
      tenants: new TenantRunner(transactions, connection, settings.tenants),
      transactions,
      identity,
      log,
    },
    log,
  );
  return service;
}

function deliveryHandler({ settings, log }: WiringInput, base: Foundation, recorder: LateRecorder): DeliveryHandler {
  const { database, follower, commits } = base;
  const throttled = new ThrottledLog(log);
  const records = new DeliveryRecords(
    database,
    new DeadLetterAlert(settings, log),
    throttled,
    base.wakeTaker,
    settings.pollMs,
  );
  return new DeliveryHandler({ database, follower, commits, recorder, records, throttled });
}

function bootContext(
  input: WiringInput,
  { database }: Foundation,
  registry: SubscriptionRegistry,
  jobs: JobRegistry,
): BootContext {
  const { settings, dataSource, catalog, roots } = input;
  return {
    settings,
    dataSource,
    database,
    catalog,
    registry,
    jobs,
    get roots() {
      return roots();
    },
  };
}
