import type { DiscoveryService } from '@nestjs/core';
import type { DataSource } from 'typeorm';
import type { BootContext } from './boot/boot-check.js';
import { ConsumerService } from './consume/consumer.service.js';
import { DeadLetterAlert } from './consume/dead-letter-alert.js';
import { DeliveryHandler } from './consume/delivery-handler.js';
import { DeliveryRecords } from './consume/delivery-records.js';
import { LateRecorder } from './consume/late-recorder.js';
import { SubscriptionExplorer } from './consume/subscription.explorer.js';
import { SubscriptionRegistry } from './consume/subscription.registry.js';
import { type Log, ThrottledLog } from './core/throttled-log.js';
import { WakeSignal } from './core/wake-signal.js';
import { WorkerIdentity } from './core/worker-identity.js';
import type { EventCatalog } from './events/event-catalog.js';
import type { EventPublisher } from './events/event-publisher.js';
import { OutboxPublisher } from './events/outbox-publisher.js';
import { appName, OutboxLifecycle } from './outbox.lifecycle.js';
import type { OutboxSettings } from './outbox.options.js';
import { BackfillService } from './recover/backfill.service.js';
import { DeadLetters } from './recover/dead-letters.service.js';
import { SweepService } from './recover/sweep.service.js';
import { TakerService } from './recover/taker.service.js';
import { WorkerLockService } from './recover/worker-lock.service.js';
import { RelayService } from './relay/relay.service.js';
import { Database } from './tables/database.js';
import { CommitWatcher } from './transactions/commit-watcher.js';
import { RunnerQueue } from './transactions/runner-queue.js';
import { TransactionFollower } from './transactions/transaction-follower.js';

export interface WiringInput {
  readonly settings: OutboxSettings;
  readonly dataSource: DataSource;
  readonly catalog: EventCatalog;
  readonly discovery: DiscoveryService;
  /** Counted at bootstrap, when all modules are there. */
  readonly roots: () => number;
  readonly log: Log;
}

/** What the module provides. */
export interface OutboxParts {
  readonly publisher: EventPublisher;
  readonly deadLetters: DeadLetters;
  readonly lifecycle: OutboxLifecycle;
}

/** Builds one outbox: every part is made here, once per app, and nothing is shared between two apps in one process. */
export function wire(input: WiringInput): OutboxParts {
  const { settings, dataSource, log } = input;
  const database = new Database(dataSource, settings.schema, settings.infrastructureUrl);
  const identity = new WorkerIdentity();
  const wakeRelay = new WakeSignal();
  const wakeTaker = new WakeSignal();
  const commits = new CommitWatcher(wakeRelay);
  const follower = new TransactionFollower(dataSource, commits);
  follower.follow();
  const registry = new SubscriptionRegistry();
  const connection = database.infrastructure('worker', log);
  const recorder = new LateRecorder(database, connection, identity, log);
  const throttled = new ThrottledLog(log);
  const records = new DeliveryRecords(database, new DeadLetterAlert(settings, log), throttled);
  const handler = new DeliveryHandler({ database, follower, commits, recorder, records, throttled });
  const consumer = new ConsumerService(handler, recorder, identity, wakeTaker, log);
  const transport = settings.transport.create();
  const exclusive = transport.capabilities.processes === 'one';
  const lock = new WorkerLockService(database, identity, appName(), exclusive, () => consumer.running, log);
  const relay = new RelayService(database, settings, transport, identity, wakeRelay, wakeTaker, log);
  const taker = new TakerService(database, connection, consumer, identity, settings, wakeTaker, log);
  const context: BootContext = {
    settings,
    dataSource,
    database,
    catalog: input.catalog,
    registry,
    get roots() {
      return input.roots();
    },
  };
  const lifecycle = new OutboxLifecycle({
    context,
    explorer: new SubscriptionExplorer(input.discovery, settings, registry),
    follower,
    connection,
    transport,
    lock,
    consumer,
    recorder,
    relay,
    taker,
    others: [
      new SweepService(database, connection, identity, wakeTaker, log),
      new BackfillService(database, connection, consumer, wakeTaker, log),
    ],
    log,
  });
  return {
    publisher: new OutboxPublisher({ database, settings, follower, commits, runners: new RunnerQueue() }),
    deadLetters: new DeadLetters(database, wakeTaker),
    lifecycle,
  };
}
