import type { BootContext } from './boot/boot-check.js';
import { ConsumerService } from './consume/consumer.service.js';
import { DeliveryHandler } from './consume/delivery-handler.js';
import { DeliveryRecords } from './consume/delivery-records.js';
import { LateRecorder } from './consume/late-recorder.js';
import { MessageIntake } from './consume/message-intake.js';
import { SubscriptionExplorer } from './consume/subscription.explorer.js';
import { SubscriptionRegistry } from './consume/subscription.registry.js';
import { ProviderScan } from './core/provider-scan.js';
import { ThrottledLog } from './core/throttled-log.js';
import type { EventPublisher } from './events/event-publisher.js';
import { OutboxPublisher } from './events/outbox-publisher.js';
import type { OutboxHealth } from './inspect/health.service.js';
import type { OutboxInspector } from './inspect/inspector.js';
import type { Waiter } from './inspect/waiting.js';
import { JobRegistry } from './jobs/job.registry.js';
import { JobLocks } from './jobs/job-locks.js';
import { addLibraryJob } from './jobs/library-job.js';
import { PeriodicJobExplorer } from './jobs/periodic-job.explorer.js';
import { RunRecords } from './jobs/run-records.js';
import { SchedulerService } from './jobs/scheduler.service.js';
import { TenantRunner } from './jobs/tenant-runner.js';
import { Foundation, type WiringInput } from './outbox.foundation.js';
import { inspection, knownJobs } from './outbox.inspection.js';
import { appName, OutboxLifecycle } from './outbox.lifecycle.js';
import { BackfillService } from './recover/backfill.service.js';
import { DeadLetters } from './recover/dead-letters.service.js';
import { Durables } from './recover/durables.service.js';
import { ReconcilerService } from './recover/reconciler.service.js';
import { SweepService } from './recover/sweep.service.js';
import { TakerService } from './recover/taker.service.js';
import { WorkerLockService } from './recover/worker-lock.service.js';
import { RelayService } from './relay/relay.service.js';
import { Purge } from './retention/purge.js';
import { Outbox } from './transactions/outbox.js';
import { RunnerQueue } from './transactions/runner-queue.js';

/** What the module provides. */
export interface OutboxParts {
  readonly outbox: Outbox;
  readonly publisher: EventPublisher;
  readonly deadLetters: DeadLetters;
  readonly durables: Durables;
  readonly health: OutboxHealth;
  readonly inspector: OutboxInspector;
  readonly lifecycle: OutboxLifecycle;
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
  const durables = new Durables(database, input.log, appName());
  const runner = scheduler(input, base);
  const { health, inspector, waiter } = inspection(settings, base, durables, knownJobs(base, jobs, runner));
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
    durables,
    inspector,
    lifecycle: lifecycle(input, base, new SubscriptionRegistry(), jobs, runner, waiter),
    health,
  };
}

function lifecycle(
  input: WiringInput,
  base: Foundation,
  registry: SubscriptionRegistry,
  jobs: JobRegistry,
  runner: SchedulerService,
  waiter: Waiter,
): OutboxLifecycle {
  const { settings, log } = input;
  const { database, identity, connection, wakeTaker, wakeTakers, notifier, listener } = base;
  const recorder = new LateRecorder(database, identity, wakeTaker, log);
  const { transport } = base;
  const consumer = consumerOf(input, base, recorder);
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
    waiter,
    lock: new WorkerLockService(database, identity, appName(), exclusive, consumer, wakeTaker, log),
    consumer,
    recorder,
    relay: relayOf(input, base),
    taker: new TakerService(database, connection, consumer, identity, settings, wakeTaker, log),
    others: [
      new SweepService(database, connection, consumer, identity, wakeTakers, log),
      new BackfillService(database, connection, consumer, wakeTakers, log),
      new ReconcilerService(database, connection, transport, settings.reconcileMs, wakeTakers, log),
    ],
    listener,
    notifier,
    scheduler: runner,
    scheduled: input.scheduled,
    log,
  });
}

function consumerOf(input: WiringInput, base: Foundation, recorder: LateRecorder): ConsumerService {
  const { settings, catalog, log } = input;
  const { database, identity, wakeTaker, wakeTakers, transport } = base;
  const intake = new MessageIntake({
    database,
    settings,
    recorder,
    identity,
    known: catalog,
    takers: wakeTakers,
    throttled: new ThrottledLog(log),
  });
  const handler = deliveryHandler(input, base, recorder);
  const brokered = transport.capabilities.firstDelivery === 'message';
  const consumer = new ConsumerService(handler, recorder, identity, wakeTaker, intake, brokered, log);
  base.cancels.heardBy((eventId) => consumer.cancel(eventId));
  return consumer;
}

function relayOf({ settings, log }: WiringInput, base: Foundation): RelayService {
  const { database, transport, floor, identity, wakeRelay, wakeTaker, notifier, alert } = base;
  return new RelayService(
    database,
    settings,
    transport,
    floor,
    identity,
    wakeRelay,
    wakeTaker,
    notifier.deliveries,
    (letter) => alert.raise(letter),
    log,
  );
}

function scheduler({ settings, log }: WiringInput, base: Foundation): SchedulerService {
  const { database, follower, commits, identity, wakeJobs } = base;
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
    wakeJobs,
  );
  return service;
}

function deliveryHandler({ settings, log }: WiringInput, base: Foundation, recorder: LateRecorder): DeliveryHandler {
  const { database, follower, commits } = base;
  const throttled = new ThrottledLog(log);
  const records = new DeliveryRecords(database, base.alert, throttled, base.wakeTaker, settings.pollMs);
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
