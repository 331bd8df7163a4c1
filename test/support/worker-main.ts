import 'reflect-metadata';
import { setTimeout as pause } from 'node:timers/promises';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { type DeliveryContext, type Duration, type OutboxEvent, OutboxModule, Subscribe } from 'nestjs-outbox';
import type { WorkerReport } from './worker-process.js';

/** What a test asks of the handler, in the event's payload. */
export interface Task {
  /** Waits this long after writing its effect. */
  readonly ms?: number;
  /** Ends its process. */
  readonly crash?: boolean;
  readonly fail?: boolean;
}

function report(message: WorkerReport): void {
  process.send?.(message);
}

@Injectable()
class Work {
  @Subscribe('test.work.asked', 'worker', {
    backoff: ['200ms'],
    timeout: (process.env['TIMEOUT'] as Duration | undefined) ?? '30s',
  })
  async run(event: OutboxEvent<Task>, context: DeliveryContext): Promise<void> {
    await context.manager.query('INSERT INTO effects (event_id, durable, attempt) VALUES ($1, $2, $3)', [
      event.id,
      context.durable,
      context.attempt,
    ]);
    report({ kind: 'started', eventId: event.id });
    if (event.payload.ms) await pause(event.payload.ms);
    if (event.payload.crash) process.kill(process.pid, 'SIGKILL');
    if (event.payload.fail) throw new Error('asked to fail');
    report({ kind: 'finished', eventId: event.id });
  }
}

@Module({
  imports: [
    TypeOrmModule.forRoot({
      type: 'postgres',
      url: process.env['DATABASE_URL'] ?? '',
      poolSize: Number(process.env['POOL'] ?? 10),
    }),
    OutboxModule.forRoot({ drain: '5s' }),
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
