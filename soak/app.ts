import type { INestApplicationContext, Provider } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { OutboxModule, type OutboxRole } from 'nestjs-outbox';
import { orderBooked, orderPlaced } from './events.js';
import { ReportingLogger } from './reports.js';

/** Boots the library the way an application does, on a ladder short enough for a soak. */
export function bootApp(
  url: string,
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
          handlers: { maxAttempts: 6, backoff: ['100ms', '300ms', '1s'], timeout: '5s' },
        }),
        OutboxModule.forFeature({ emits: [orderPlaced, orderBooked] }),
      ],
      providers,
    },
    { logger: new ReportingLogger(), abortOnError: false },
  );
}
