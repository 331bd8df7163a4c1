import 'reflect-metadata';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import {
  type DeliveryContext,
  type Duration,
  EventPublisher,
  type OutboxEvent,
  OutboxModule,
  type OutboxRole,
  Subscribe,
} from 'nestjs-outbox';
import { type JetstreamOptions, jetstream } from 'nestjs-outbox/jetstream';
import { Pool } from 'pg';
import type { WorkerReport } from './worker-process.js';

/** What a test asks of the handler, in the event's payload. */
export interface Task {
  /** Waits this long after writing its effect. */
  readonly ms?: number;
  /** Waits until the test says go, in a process that was started with HOLD=on; others go on at once. */
  readonly hold?: boolean;
  /** Runs this in the handler's transaction, in a process that was started with HOLD=on. */
  readonly sql?: string;
  /** Ends its process. */
  readonly crash?: boolean;
  /** Ends its process by `process.exit`, in the middle of the handler. */
  readonly exit?: boolean;
  /** Ends its process at the moment at which the answer to its COMMIT arrives, before the library has read it. */
  readonly crashAtCommit?: boolean;
  /** Publishes one more event, with this task, after it has waited. */
  readonly publish?: Task;
  readonly fail?: boolean;
}

function report(message: WorkerReport): void {
  process.send?.(message);
}

const holds = process.env['HOLD'] === 'on';
const go = once(process, 'message');

/** Counts runs outside every transaction: what a killed process had begun stays on record. */
const witness = new Pool({ connectionString: process.env['DATABASE_URL'], application_name: 'witness', max: 1 });
witness.on('error', () => {});

@Injectable()
class Work {
  constructor(private readonly publisher: EventPublisher) {}

  @Subscribe('test.work.asked', process.env['DURABLE'] ?? 'worker', {
    backoff: [(process.env['BACKOFF'] as Duration | undefined) ?? '200ms'],
    timeout: (process.env['TIMEOUT'] as Duration | undefined) ?? '30s',
  })
  async run(event: OutboxEvent<Task>, context: DeliveryContext): Promise<void> {
    const { ms, hold, sql, crash, exit, crashAtCommit, publish, fail } = event.payload;
    await context.manager.query('INSERT INTO effects (event_id, durable, attempt, pid) VALUES ($1, $2, $3, $4)', [
      event.id,
      context.durable,
      context.attempt,
      process.pid,
    ]);
    await witness.query('INSERT INTO runs (event_id, attempt, pid) VALUES ($1, $2, $3)', [
      event.id,
      context.attempt,
      process.pid,
    ]);
    report({ kind: 'started', eventId: event.id });
    if (ms) await pause(ms, undefined, { signal: context.signal });
    if (hold && holds) await go;
    if (sql && holds) await context.manager.query(sql);
    if (crash) process.kill(process.pid, 'SIGKILL');
    if (exit) process.exit(1);
    if (crashAtCommit) await killAtCommit(context);
    if (publish) await this.publisher.publish('test.work.asked', publish);
    if (fail) throw new Error('asked to fail');
    report({ kind: 'finished', eventId: event.id });
  }
}

async function killAtCommit(context: DeliveryContext): Promise<void> {
  const client = await context.manager.queryRunner?.connect();
  client.connection.prependListener('commandComplete', ({ text }: { text: string }) => {
    if (text === 'COMMIT') process.kill(process.pid, 'SIGKILL');
  });
}

/** JETSTREAM: its options, as JSON. Without it the default transport. */
const broker: JetstreamOptions | undefined = JSON.parse(process.env['JETSTREAM'] ?? 'null') ?? undefined;

@Module({
  imports: [
    TypeOrmModule.forRoot({
      type: 'postgres',
      url: process.env['DATABASE_URL'] ?? '',
      poolSize: Number(process.env['POOL'] ?? 10),
      retryDelay: 500,
    }),
    OutboxModule.forRoot({
      drain: (process.env['DRAIN'] as Duration | undefined) ?? '5s',
      role: (process.env['ROLE'] as OutboxRole | undefined) ?? 'all',
      ...(broker ? { transport: jetstream(broker), relay: { reconcile: '1s' } } : {}),
    }),
    OutboxModule.forFeature({ emits: ['test.work.asked'] }),
  ],
  providers: [Work],
})
class WorkerModule {}

const log = (message: unknown) => report({ kind: 'log', text: String(message) });
const app = await NestFactory.createApplicationContext(WorkerModule, { logger: { log, warn: log, error: log } });
if (process.env['SHUTDOWN_HOOKS'] !== 'off') app.enableShutdownHooks();
// A worker must not outlive a test that was killed.
process.on('disconnect', () => process.exit(1));
report({ kind: 'ready' });
