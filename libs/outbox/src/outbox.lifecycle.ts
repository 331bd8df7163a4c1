import { hostname } from 'node:os';
import type { BeforeApplicationShutdown, OnApplicationBootstrap, OnModuleDestroy } from '@nestjs/common';
import { type BootContext, works } from './boot/boot-check.js';
import { passGate } from './boot/boot-gate.js';
import { defaultConcurrency } from './boot/pool.check.js';
import { secondWorkers } from './boot/sole-worker.check.js';
import type { ConsumerService } from './consume/consumer.service.js';
import type { LateRecorder } from './consume/late-recorder.js';
import { registerDurables } from './consume/registration.js';
import { isServed } from './consume/served.js';
import type { Subscription } from './consume/subscription.js';
import type { BackgroundService } from './core/background-service.js';
import { type Log, ThrottledLog } from './core/throttled-log.js';
import type { ServedDurable, Transport } from './core/transport.js';
import { untilAnswered } from './core/until-answered.js';
import { ListedJobs, type Registry } from './jobs/listed-jobs.js';
import type { SchedulerService } from './jobs/scheduler.service.js';
import { OutboxBootError } from './outbox.errors.js';
import type { TakerService } from './recover/taker.service.js';
import type { WorkerLockService } from './recover/worker-lock.service.js';
import type { ListenerService } from './relay/listener.service.js';
import type { Notifier } from './relay/notifier.js';
import type { RelayService } from './relay/relay.service.js';
import type { InfrastructureConnection } from './tables/infrastructure-connection.js';
import type { TransactionFollower } from './transactions/transaction-follower.js';

export interface LifecycleParts {
  readonly context: BootContext;
  readonly explorers: readonly { explore(): void }[];
  readonly follower: TransactionFollower;
  readonly connection: InfrastructureConnection;
  readonly transport: Transport;
  readonly lock: WorkerLockService;
  readonly consumer: ConsumerService;
  readonly recorder: LateRecorder;
  /** Of every role. */
  readonly waiter: { close(): void };
  readonly relay: RelayService;
  readonly taker: TakerService;
  /** Sweep, back-fill: loops without an order among them. */
  readonly others: readonly BackgroundService[];
  readonly scheduler: SchedulerService;
  readonly listener: ListenerService | undefined;
  readonly notifier: Notifier;
  /** Nest's list of scheduled jobs. */
  readonly scheduled: () => Promise<Registry>;
  readonly log: Log;
}

/** So long a stop waits for what came of deliveries to be recorded; without it a broker gives them again, and they are charged. */
const recordMs = 2_000;

/** The name under which this process shows in `workers`. */
export function appName(): string {
  return `${hostname()}:${process.pid}`;
}

/**
 * The order in which a process lives and dies.
 *
 *   bootstrap: explore → gate → worker lock → registration → consumer, relay, taker, sweep, jobs
 *   destroy:   relay, taker and scheduler stop, what was fetched and not started is handed back (handlers run on, and may publish)
 *   before shutdown: drain within its bound → resign → connections close; TypeORM closes its pool after that
 */
export class OutboxLifecycle implements OnApplicationBootstrap, OnModuleDestroy, BeforeApplicationShutdown {
  private started = false;

  constructor(private readonly parts: LifecycleParts) {}

  async onApplicationBootstrap(): Promise<void> {
    const { context, explorers, log } = this.parts;
    try {
      for (const explorer of explorers) explorer.explore();
      await passGate(context, log);
      this.parts.notifier.start();
      if (works(context.settings)) await this.startWorking();
    } catch (error) {
      // Nest calls no hook of an app that did not come up: its connections and its lock would stay.
      await this.onModuleDestroy();
      await this.beforeApplicationShutdown();
      throw error;
    }
  }

  async onModuleDestroy(): Promise<void> {
    // Now, and not when all has drained: a handler that waits for another event would hold that up.
    this.parts.waiter.close();
    if (!this.started) return;
    const { relay, taker, others, transport, consumer, scheduler, notifier } = this.parts;
    // First of all: from here on a handler's failure is charged to nobody, since others' destroy hooks run beside us.
    const handedBack = consumer.stopTaking();
    await Promise.all([
      relay.stop(),
      taker.stop(),
      scheduler.stop(),
      ...others.map((service) => service.stop()),
      transport.stop(),
      handedBack.then(() => notifier.deliveries.nudge()),
    ]);
  }

  async beforeApplicationShutdown(): Promise<void> {
    const { consumer, recorder, transport, lock, connection, follower, context, scheduler, listener, notifier } =
      this.parts;
    if (this.started) {
      const { drainMs } = context.settings;
      await Promise.all([consumer.drain(drainMs), scheduler.drain(drainMs)]);
      // What the transport got while it was stopped is handed back by now, or soon.
      await recorder.settled(recordMs);
      await transport.close();
      await recorder.close();
      await lock.resign();
      this.parts.log.log(`worker ${appName()} stopped`);
    }
    notifier.close();
    await listener?.stop();
    // In every role: health, and news for others, open it in a process that never worked.
    await connection.close();
    follower.stop();
  }

  private async startWorking(): Promise<void> {
    const { context, connection, transport, lock, consumer, relay, taker, others, scheduler, listener, log } =
      this.parts;
    const { settings, database, registry } = context;
    this.started = true;
    const waiting = new ThrottledLog(log);
    const number = await untilAnswered(() => lock.enrol(), waiting);
    const second = await untilAnswered(() => secondWorkers(context, number), waiting);
    if (second.length > 0) throw new OutboxBootError(second);
    const brokered = transport.capabilities.firstDelivery === 'message';
    // All that the modules have: another deployment of the same image may begin later, and shall miss nothing until then.
    const registered = await untilAnswered(
      () => registerDurables(database, connection, registry.all, brokered),
      waiting,
    );
    const durables = new Map([...registered].filter(([, { durable }]) => isServed(settings, durable)));
    const slots = settings.handlerConcurrency ?? defaultConcurrency(database.poolMax);
    consumer.open(durables, slots);
    const served = () => this.served(durables);
    await transport.start(consumer, await untilAnswered(served, waiting), served);
    await this.listJobs();
    for (const service of [lock, relay, taker, ...others, scheduler, listener]) service?.start();
    log.log(
      `worker ${appName()} handles ${durables.size} durable${durables.size === 1 ? '' : 's'} over ${transport.name}, ${slots} at once: ${[...durables.values()].map((s) => s.durable).join(', ') || 'none'}; it runs these jobs: ${context.jobs.all.map(({ name }) => name).join(', ')}`,
    );
  }

  private async served(durables: ReadonlyMap<number, Subscription>): Promise<ServedDurable[]> {
    const { context, connection } = this.parts;
    const [{ rows }] = await connection.run(context.database.durables.types([...durables.keys()]));
    return [...durables].map(([id, { durable: name }]) => ({
      id,
      name,
      foreign: context.catalog.acceptsSome,
      types: rows
        .filter((row) => row.durable === id)
        .map(({ pattern, since_ms }) => ({ pattern, since: since_ms === null ? null : new Date(since_ms) })),
    }));
  }

  /** Puts the jobs where Nest's tooling looks for them, and gives them to the scheduler. */
  private async listJobs(): Promise<void> {
    const { scheduler, scheduled, context } = this.parts;
    const { all } = context.jobs;
    const listed = new ListedJobs(await scheduled(), () => scheduler.nudge());
    const taken = listed.taken(all);
    if (taken.length > 0)
      throw new OutboxBootError(
        taken.map((name) => ({
          check: 'jobs',
          message: `the SchedulerRegistry has something else under the name of job '${name}'; give one of them another name`,
        })),
      );
    listed.add(all);
    scheduler.open(all, listed);
  }
}
