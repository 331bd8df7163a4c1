import 'reflect-metadata';
import type { INestApplicationContext, LoggerService, Provider } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import {
  type DeliveryContext,
  EventPublisher,
  type OutboxEvent,
  OutboxInspector,
  OutboxModule,
  type OutboxOptions,
  Subscribe,
} from 'nestjs-outbox';
import { DataSource } from 'typeorm';

export const orderPlaced = 'bench.order.placed';
/** A payload as events tend to have: a handful of fields. */
export const payloadOf = (n: number) => ({ orderId: n, customer: 'customer-17', total: 129.9, currency: 'EUR' });

export interface BenchApp {
  readonly dataSource: DataSource;
  readonly publisher: EventPublisher;
  readonly inspector: OutboxInspector;
  close(): Promise<void>;
}

export interface BenchAppOptions {
  readonly url: string;
  readonly poolSize?: number;
  readonly providers?: Provider[];
  readonly outbox?: OutboxOptions;
}

/** Boots the library the way an application does. */
export async function bootApp(options: BenchAppOptions): Promise<BenchApp> {
  class BenchModule {}
  const app: INestApplicationContext = await NestFactory.createApplicationContext(
    {
      module: BenchModule,
      imports: [
        TypeOrmModule.forRoot({
          type: 'postgres',
          url: options.url,
          poolSize: options.poolSize ?? 10,
          retryAttempts: 0,
        }),
        OutboxModule.forRoot({ schema: { onStart: 'migrate' }, ...options.outbox }),
        OutboxModule.forFeature({ emits: [orderPlaced] }),
      ],
      providers: options.providers ?? [],
    },
    { logger: new TroubleOnStderr(), abortOnError: false },
  );
  return {
    dataSource: app.get(DataSource),
    publisher: app.get(EventPublisher),
    inspector: app.get(OutboxInspector),
    close: () => app.close(),
  };
}

export type Handle = (event: OutboxEvent, ctx: DeliveryContext) => Promise<unknown> | undefined;

/** A provider with one subscription, which does what `handle` does. */
export function handlerOf(durable: string, handle: Handle): Provider {
  class BenchHandler {
    @Subscribe(orderPlaced, durable)
    handle(event: OutboxEvent, ctx: DeliveryContext): Promise<unknown> | undefined {
      return handle(event, ctx);
    }
  }
  return { provide: `handler of ${durable}`, useFactory: () => new BenchHandler() };
}

/** Only what is wrong is worth a line, and stdout belongs to the figures. */
class TroubleOnStderr implements LoggerService {
  log(): void {}

  warn(message: unknown): void {
    process.stderr.write(`warn ${String(message)}\n`);
  }

  error(message: unknown): void {
    process.stderr.write(`error ${String(message)}\n`);
  }
}
