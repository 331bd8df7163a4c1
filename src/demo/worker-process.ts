import { NestFactory } from '@nestjs/core';
import { AppModule } from '../app.module.js';
import { AppConfig, type Service } from '../config/app.config.js';
import { wordsOf } from './demo-error.js';
import { DemoLogger } from './demo-logger.js';

/** What a worker tells the process that started it. */
export type WorkerReport = { readonly kind: 'ready' } | { readonly kind: 'note'; readonly line: string };

/** The same app in the worker's role: it handles, and serves no HTTP. */
export async function work(): Promise<void> {
  const report = (message: WorkerReport, sent: () => void = () => {}) => {
    if (process.connected) process.send?.(message, sent);
    else sent();
  };
  const note = (line: string) => report({ kind: 'note', line: `[worker ${process.pid}] ${line}` });
  // Ctrl-C goes to the whole group; the parent stops its workers when it has stopped publishing.
  process.on('SIGINT', () => {});
  // The parent is gone: what runs here is taken up by whoever comes next.
  process.on('disconnect', () => process.exit(1));
  const { DATABASE_URL = '', BLOB_FOLDER = '', OUTBOX_DEMO_SERVICE, NATS_URL } = process.env;
  const service = (OUTBOX_DEMO_SERVICE || undefined) as Service | undefined;
  const config = new AppConfig(DATABASE_URL, BLOB_FOLDER, 'worker', service, NATS_URL || undefined);
  try {
    const app = await NestFactory.createApplicationContext(AppModule.forRoot(config), {
      logger: new DemoLogger(note),
      abortOnError: false,
    });
    process.once('SIGTERM', () => void app.close().finally(() => process.exit()));
    report({ kind: 'ready' });
  } catch (error) {
    report({ kind: 'note', line: `a worker did not start: ${wordsOf(error)}` }, () => process.exit(1));
  }
}
