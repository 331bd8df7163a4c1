import './skewed-clock.js';
import 'reflect-metadata';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { Injectable, Module, type OnApplicationShutdown } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import {
  type Duration,
  type JobContext,
  type JobSchedule,
  OutboxModule,
  type PeriodicJobOptions,
  type TenantJobContext,
} from 'nestjs-outbox';
import { Pool } from 'pg';
import { job } from './job.js';
import type { WorkerReport } from './worker-process.js';

/** A job of the process, and what its method does. */
export interface JobTask {
  readonly name: string;
  readonly schedule: JobSchedule;
  readonly options?: PeriodicJobOptions;
  /** Lasts this long. */
  readonly ms?: number;
  /** Lasts until the test says go. */
  readonly hold?: boolean;
  /** Goes on when it is asked to end. Otherwise it ends at once, with the reason of its signal. */
  readonly deaf?: boolean;
  /** Ends its process, at the first slot that anybody has begun. */
  readonly poison?: boolean;
  /** The work of a tenant whose number is a multiple of this fails, after it has written. */
  readonly failEvery?: number;
}

const tasks: readonly JobTask[] = JSON.parse(process.env['JOBS'] ?? '[]');
const tenants = Array.from({ length: Number(process.env['TENANTS'] ?? 0) }, (_, n) => `t${n}`);
const infrastructure = process.env['INFRASTRUCTURE_URL'];
const go = once(process, 'message');

function report(message: WorkerReport): void {
  process.send?.(message);
}

/** On a server that no test stops: what began and ended is on record whatever becomes of the other one. */
const witness = new Pool({ connectionString: process.env['WITNESS_URL'], application_name: 'witness', max: 6 });
witness.on('error', () => {});

/** One run as the method itself sees it: a row with its beginning and its end. */
async function run(task: JobTask, context: JobContext | TenantJobContext): Promise<void> {
  const tenant = 'tenantId' in context ? context.tenantId : null;
  const began = await witness.query(
    'INSERT INTO runs (job, slot, attempt, tenant, pid, app_clock) VALUES ($1, $2, $3, $4, $5, $6) RETURNING n',
    [task.name, context.slot, context.attempt, tenant, process.pid, new Date()],
  );
  if (tenant === null) report({ kind: 'started', text: task.name });
  let how = 'returned';
  try {
    await work(task, context);
  } catch (error) {
    how = 'threw';
    throw error;
  } finally {
    const { aborted, reason } = context.signal;
    await witness.query('UPDATE runs SET ended = clock_timestamp(), how = $2, reason = $3 WHERE n = $1', [
      began.rows[0].n,
      how,
      aborted ? reason.constructor.name : null,
    ]);
    if (tenant === null) report({ kind: 'finished', text: task.name });
  }
}

async function work(task: JobTask, context: JobContext | TenantJobContext): Promise<void> {
  const { ms, hold, deaf, poison, failEvery } = task;
  const asked = new Promise<never>((_, reject) => {
    context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
  });
  asked.catch(() => {});
  const patiently = (waited: Promise<unknown>) => (deaf ? waited : Promise.race([waited, asked]));
  if (poison) await dieAtFirst(task.name, context.slot);
  if ('manager' in context) {
    const { tenantId, slot, manager } = context;
    await manager.query('INSERT INTO effects (tenant, slot, pid) VALUES ($1, $2, $3)', [tenantId, slot, process.pid]);
    if (failEvery && Number(tenantId.slice(1)) % failEvery === 0) throw new Error('asked to fail');
  }
  if (ms) await patiently(pause(ms));
  if (hold) await patiently(go);
}

async function dieAtFirst(name: string, slot: Date): Promise<void> {
  const { rows } = await witness.query('SELECT min(slot) = $2 AS first FROM runs WHERE job = $1', [name, slot]);
  if (rows[0].first) process.kill(process.pid, 'SIGKILL');
}

/** What else the process has to close, after the library has. */
@Injectable()
class Slow implements OnApplicationShutdown {
  onApplicationShutdown(): Promise<unknown> {
    return pause(Number(process.env['CLOSE_MS'] ?? 0));
  }
}

@Module({
  imports: [
    TypeOrmModule.forRoot({
      type: 'postgres',
      url: process.env['DATABASE_URL'] ?? '',
      applicationName: 'app',
      retryDelay: 500,
    }),
    OutboxModule.forRoot({
      ...(infrastructure ? { infrastructure: { url: infrastructure } } : {}),
      drain: (process.env['DRAIN'] as Duration | undefined) ?? '5s',
      ...(tenants.length > 0 ? { tenancy: { list: async () => tenants } } : {}),
    }),
  ],
  providers: [
    Slow,
    ...tasks.map((task) => job(task.name, task.schedule, (context) => run(task, context), task.options)),
  ],
})
class JobModule {}

const log = (message: unknown) => report({ kind: 'log', text: String(message) });
const app = await NestFactory.createApplicationContext(JobModule, { logger: { log, warn: log, error: log } });
app.enableShutdownHooks([], { useProcessExit: true });
// A worker must not outlive a test that was killed.
process.on('disconnect', () => process.exit(1));
report({ kind: 'ready' });
