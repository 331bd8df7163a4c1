import { NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { AppModule } from '../app.module.js';
import { AppConfig } from '../config/app.config.js';
import type { DemoArguments } from './arguments.js';
import { DemoError } from './demo-error.js';
import { DemoLogger, type Note } from './demo-logger.js';
import { type Stage, setStage } from './stage.js';
import { WorkerPool } from './worker-pool.js';

/** A stage with the app on it, and its workers if there are any. */
export interface Show {
  readonly stage: Stage;
  readonly app: NestExpressApplication;
  readonly pool: WorkerPool | undefined;
  /** The names of the processes that handle and run jobs now. */
  living(): string[];
  /** Rejects when the workers do not stay up; never resolves. */
  readonly failed: Promise<never>;
  /** Stops the app and its workers; the database stays. */
  stopApp(): Promise<void>;
  close(): Promise<void>;
}

/** Starts everything; with workers, this process only publishes. Nothing is published before the durables are registered. */
export async function openShow(main: string, options: DemoArguments, note: Note, signal: AbortSignal): Promise<Show> {
  const stage = await setStage(main, options);
  const pool = options.workers > 0 ? new WorkerPool(main, stage, note) : undefined;
  let app: NestExpressApplication | undefined;
  const stopApp = async (): Promise<void> => {
    await Promise.all([app?.close(), pool?.stop()]);
    app = undefined;
  };
  const close = async (): Promise<void> => {
    try {
      await stopApp();
    } finally {
      await stage.clear();
    }
  };
  try {
    pool?.start(options);
    const role = pool ? 'publisher' : 'all';
    const config = new AppConfig(stage.appUrl, stage.blobFolder, role, undefined, stage.broker?.url);
    const nest = await NestFactory.create<NestExpressApplication>(AppModule.forRoot(config), {
      logger: new DemoLogger(note),
      abortOnError: false,
    });
    app = nest;
    await nest.init();
    if (pool) await Promise.race([pool.started, pool.failed, aborted(signal)]);
    const failed = pool?.failed ?? new Promise<never>(() => {});
    const living = () => pool?.names ?? [config.process];
    return { stage, app: nest, pool, living, failed, stopApp, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(new DemoError('stopped before the start', 130));
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
