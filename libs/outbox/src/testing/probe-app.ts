import { setTimeout as pause } from 'node:timers/promises';
import type { INestApplicationContext, LoggerService } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { DataSource } from 'typeorm';
import type { DeliveryContext } from '../consume/delivery-context.js';
import { Subscribe, type SubscribeOptions } from '../consume/subscribe.decorator.js';
import type { OutboxEvent } from '../core/envelope.js';
import type { TransportFactory } from '../core/transport.js';
import { EventPublisher } from '../events/event-publisher.js';
import { OutboxInspector } from '../inspect/inspector.js';
import type { JobContext } from '../jobs/job-context.js';
import { type JobSchedule, PeriodicJob, type PeriodicJobOptions } from '../jobs/periodic-job.decorator.js';
import { OutboxModule } from '../outbox.module.js';
import type { OutboxOptions, OutboxRole } from '../outbox.options.js';

export const probeType = 'conformance.probe.sent';

/** A durable of a suite's own: of any types, and it writes no effect by itself. */
export interface ProbeSubscription {
  readonly types: readonly string[];
  readonly durable: string;
  readonly options?: SubscribeOptions;
  handle(event: OutboxEvent, context: DeliveryContext): Promise<void>;
}

export interface ProbeJob {
  readonly name: string;
  readonly schedule: JobSchedule;
  readonly options?: Omit<PeriodicJobOptions, 'name' | 'perTenant'>;
  run(context: JobContext): Promise<void>;
}

export interface ProbeOptions {
  readonly url: string;
  readonly transport: TransportFactory;
  /** The durables this app handles; none for an app that only publishes. */
  readonly durables: readonly string[];
  readonly subscriptions?: readonly ProbeSubscription[];
  readonly jobs?: readonly ProbeJob[];
  /** What it publishes beside the probe's own type. */
  readonly types?: readonly string[];
  readonly relay?: OutboxOptions['relay'];
  readonly role?: OutboxRole;
  readonly concurrency?: number;
  readonly subscribe?: SubscribeOptions;
  readonly handle?: (event: OutboxEvent<{ n: number }>, context: DeliveryContext) => Promise<void>;
}

/** An app of the conformance suite: its handlers write one row each into `conformance_effects`, named after the app. */
export interface ProbeApp {
  readonly app: INestApplicationContext;
  readonly publisher: EventPublisher;
  readonly inspector: OutboxInspector;
  readonly dataSource: DataSource;
  /** Most handlers that ran at once. */
  readonly most: () => number;
  publish(numbers: readonly number[]): Promise<string[]>;
  close(): Promise<void>;
}

const silent: LoggerService = { log: () => {}, warn: () => {}, error: () => {} };

export async function bootProbe(name: string, options: ProbeOptions): Promise<ProbeApp> {
  const counter = { running: 0, most: 0 };
  const providers = [
    ...options.durables.map((durable) => handlerClass(name, durable, options, counter)),
    ...(options.subscriptions ?? []).map(subscriber),
    ...(options.jobs ?? []).map(jobClass),
  ];
  const app = await NestFactory.createApplicationContext(
    {
      module: class ProbeModule {},
      imports: [
        TypeOrmModule.forRoot({ type: 'postgres', url: options.url, poolSize: 10, retryAttempts: 0 }),
        OutboxModule.forRoot({
          // A publisher carries nothing, so it is given no transport; one for a single process would be refused.
          ...(options.role === 'publisher' ? {} : { transport: options.transport }),
          role: options.role ?? 'all',
          schema: { onStart: 'migrate' },
          drain: '1s',
          ...(options.relay ? { relay: options.relay } : {}),
          handlers: { concurrency: options.concurrency ?? 4 },
        }),
        OutboxModule.forFeature({ emits: [probeType, ...(options.types ?? [])] }),
      ],
      providers,
    },
    { logger: silent, abortOnError: false },
  );
  const dataSource = app.get(DataSource);
  const publisher = app.get(EventPublisher);
  return {
    app,
    publisher,
    inspector: app.get(OutboxInspector),
    dataSource,
    most: () => counter.most,
    publish: (numbers) =>
      dataSource.transaction(async () => {
        const events = numbers.map((n) => ({ event: probeType, payload: { n } }));
        return (await publisher.publishMany(events)).map(({ id }) => id);
      }),
    close: () => app.close(),
  };
}

function handlerClass(
  name: string,
  durable: string,
  options: ProbeOptions,
  counter: { running: number; most: number },
) {
  class ProbeHandler {
    @Subscribe(probeType, durable, { backoff: ['200ms'], ...options.subscribe })
    async handle(event: OutboxEvent<{ n: number }>, context: DeliveryContext): Promise<void> {
      counter.running += 1;
      counter.most = Math.max(counter.most, counter.running);
      try {
        await context.manager.query(
          'INSERT INTO conformance_effects (event_id, durable, n, app) VALUES ($1, $2, $3, $4)',
          [event.id, context.durable, event.payload.n, name],
        );
        await options.handle?.(event, context);
      } finally {
        counter.running -= 1;
      }
    }
  }
  return ProbeHandler;
}

function subscriber({ types, durable, options, handle }: ProbeSubscription) {
  class ProbeSubscriber {
    @Subscribe(types, durable, options)
    handle(event: OutboxEvent<never>, context: DeliveryContext): Promise<void> {
      return handle(event, context);
    }
  }
  return ProbeSubscriber;
}

function jobClass({ name, schedule, options, run }: ProbeJob) {
  class ProbeJobs {
    @PeriodicJob(schedule, { ...options, name })
    run(context: JobContext): Promise<void> {
      return run(context);
    }
  }
  return ProbeJobs;
}

/** Waits until `look` is true; throws after `withinMs`. */
export async function until(what: string, look: () => Promise<boolean>, withinMs = 40_000): Promise<void> {
  const end = performance.now() + withinMs;
  while (!(await look())) {
    if (performance.now() > end) throw new Error(`${what}: not within ${withinMs} ms`);
    await pause(20);
  }
}
