import type {
  DynamicModule,
  INestApplicationContext,
  LoggerService,
  ModuleMetadata,
  Provider,
  Type,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { type EventManifest, EventPublisher, memory, OutboxModule, type OutboxRootOptions } from 'nestjs-outbox';
import { jetstream } from 'nestjs-outbox/jetstream';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { natsUrl } from './test-database.js';

export interface TestAppOptions {
  readonly url: string;
  readonly providers?: Provider[];
  readonly controllers?: Type[];
  readonly imports?: ModuleMetadata['imports'];
  readonly manifest?: EventManifest;
  readonly outbox?: OutboxRootOptions;
  /** In place of `OutboxModule.forRoot(outbox)`. */
  readonly root?: DynamicModule;
  readonly typeorm?: Partial<Extract<DataSourceOptions, { type: 'postgres' }>>;
}

export interface TestApp {
  readonly app: INestApplicationContext;
  readonly dataSource: DataSource;
  readonly publisher: EventPublisher;
  readonly log: CapturedLog;
  close(): Promise<void>;
}

/** Boots a real Nest app around the given providers, with the schema installed and its log captured. */
export async function bootApp(options: TestAppOptions): Promise<TestApp> {
  const log = new CapturedLog();
  let opened: DataSource | undefined;
  class TestModule {}
  const booting = NestFactory.createApplicationContext(
    {
      module: TestModule,
      imports: [
        TypeOrmModule.forRoot({
          type: 'postgres',
          url: options.url,
          poolSize: 10,
          retryAttempts: 0,
          ...options.typeorm,
        }),
        options.root ??
          OutboxModule.forRoot({
            schema: { onStart: 'migrate' },
            ...transport(options.url, options.outbox?.schema),
            ...options.outbox,
          }),
        ...(options.manifest ? [OutboxModule.forFeature(options.manifest)] : []),
        ...(options.imports ?? []),
      ],
      providers: [
        ...(options.providers ?? []),
        { provide: Symbol('opened'), inject: [DataSource], useFactory: (source: DataSource) => (opened = source) },
      ],
      controllers: options.controllers ?? [],
    },
    { logger: log, abortOnError: false },
  );
  // Nest closes nothing of an app that did not boot.
  const app = await booting.catch(async (error) => {
    await opened?.destroy();
    throw error;
  });
  let closed: Promise<void> | undefined;
  return {
    app,
    dataSource: app.get(DataSource),
    publisher: app.get(EventPublisher),
    log,
    close: () => {
      closed ??= app.close();
      return closed;
    },
  };
}

/** The transport of the Jest project that runs; the default one unless it says otherwise (jest.config.cjs). */
function transport(url: string, schema: OutboxRootOptions['schema']): Pick<OutboxRootOptions, 'transport'> {
  const { outboxTransport } = globalThis as { outboxTransport?: string };
  if (outboxTransport === 'memory') return { transport: memory() };
  if (outboxTransport !== 'jetstream') return {};
  // All apps on one outbox share a stream, and no others do. Names of streams are short.
  const database = new URL(url).pathname.slice(1);
  const stream = schema?.name === undefined ? database : `${database.slice(-12)}_${schema.name}`.slice(0, 32);
  return { transport: jetstream({ servers: natsUrl(), stream, prefix: stream, ackWait: '2s' }) };
}

/** Nest's logger for tests: keeps every line. */
export class CapturedLog implements LoggerService {
  readonly lines: string[] = [];

  log(message: unknown): void {
    this.lines.push(`log ${String(message)}`);
  }

  warn(message: unknown): void {
    this.lines.push(`warn ${String(message)}`);
  }

  error(message: unknown): void {
    this.lines.push(`error ${String(message)}`);
  }

  matching(pattern: RegExp): string[] {
    return this.lines.filter((line) => pattern.test(line));
  }
}
