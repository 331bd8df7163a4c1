import type { INestApplicationContext, Provider } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { OutboxModule, type OutboxRole, postgres } from 'nestjs-outbox';
import { jetstream } from 'nestjs-outbox/jetstream';
import { orderBooked, orderPlaced } from './events.js';
import { ackWaitMs } from './plan.js';
import { ReportingLogger, type SoakTask } from './reports.js';

/** Boots the library the way an application does, on a ladder short enough for a soak. */
export function bootApp(
  { url, natsUrl }: SoakTask,
  applicationName: string,
  role: OutboxRole,
  providers: Provider[],
): Promise<INestApplicationContext> {
  class SoakModule {}
  return NestFactory.createApplicationContext(
    {
      module: SoakModule,
      imports: [
        TypeOrmModule.forRoot({
          type: 'postgres',
          url,
          applicationName,
          poolSize: 10,
          retryAttempts: 100,
          retryDelay: 300,
          extra: { connectionTimeoutMillis: 5_000 },
        }),
        OutboxModule.forRoot({
          role,
          transport: natsUrl ? jetstream({ servers: natsUrl, ackWait: `${ackWaitMs}ms` }) : postgres(),
          relay: { reconcile: '2s' },
          handlers: { maxAttempts: 6, backoff: ['100ms', '300ms', '1s'], timeout: '5s' },
        }),
        OutboxModule.forFeature({ emits: [orderPlaced, orderBooked] }),
      ],
      providers,
    },
    { logger: new ReportingLogger(), abortOnError: false },
  );
}
