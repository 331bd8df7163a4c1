import { type DynamicModule, Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { OutboxModule, postgres } from 'nestjs-outbox';
import { jetstream } from 'nestjs-outbox/jetstream';
import { AuditModule } from './audit/audit.module.js';
import { AuthModule } from './auth/auth.module.js';
import { listTenants } from './auth/tenants.js';
import { BillingModule } from './billing/billing.module.js';
import { type AppConfig, services } from './config/app.config.js';
import { ConfigModule } from './config/config.module.js';
import { FileModule } from './file/file.module.js';
import { LedgerModule } from './ledger/ledger.module.js';
import { NotificationsModule } from './notifications/notifications.module.js';
import { OperationsModule } from './operations/operations.module.js';

@Module({})
export class AppModule {
  static forRoot(config: AppConfig): DynamicModule {
    return {
      module: AppModule,
      imports: [
        ConfigModule.forRoot(config),
        TypeOrmModule.forRoot({ type: 'postgres', url: config.databaseUrl, autoLoadEntities: true, poolSize: 10 }),
        OutboxModule.forRoot({
          role: config.role,
          // Seconds where the defaults are half a minute, as a demo kills its workers and its broker: so long is a killed
          // worker's message waited for, and one to two times so long one that the broker lost.
          transport: config.natsUrl ? jetstream({ servers: config.natsUrl, ackWait: '5s' }) : postgres(),
          relay: { reconcile: '5s' },
          tenancy: { list: listTenants },
          // A ladder of seconds, so that a demo of seconds sees its end; leave it out to have the default of hours.
          handlers: {
            maxAttempts: 4,
            backoff: ['200ms', '400ms', '800ms'],
            ...(config.service ? services[config.service] : {}),
          },
        }),
        OperationsModule,
        AuthModule,
        BillingModule,
        LedgerModule,
        NotificationsModule,
        AuditModule,
        FileModule,
      ],
    };
  }
}
