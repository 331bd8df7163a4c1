import { setImmediate } from 'node:timers/promises';
import {
  type DynamicModule,
  type INestApplicationContext,
  Logger,
  type LoggerService,
  type Type,
} from '@nestjs/common';
import { DiscoveryService, ModulesContainer, NestFactory } from '@nestjs/core';
import { checkGraph } from '../boot/graph-checks.js';
import { SubscriptionExplorer } from '../consume/subscription.explorer.js';
import { SubscriptionRegistry } from '../consume/subscription.registry.js';
import { ProviderScan } from '../core/provider-scan.js';
import { KnownEvents } from '../events/known-events.js';
import { JobRegistry } from '../jobs/job.registry.js';
import { PeriodicJobExplorer } from '../jobs/periodic-job.explorer.js';
import type { BootProblem } from '../outbox.errors.js';
import { DeclaredManifest, OutboxModule, RAW_OPTIONS, rootsIn } from '../outbox.module.js';
import { type OutboxOptions, OutboxSettings } from '../outbox.options.js';
import { postgres } from '../transports/postgres/postgres.transport.js';

/**
 * The part of the boot gate that needs no database, for a unit test or a lint job:
 *
 *     expect(await checkOutbox(AppModule)).toEqual([]);
 *
 * Builds the app's graph in Nest's preview mode: no provider is instantiated, no factory and no hook runs, no
 * connection is opened. Names, durables, scopes, classes provided twice, manifests and options are checked; a graph
 * that Nest cannot build is a problem, too.
 *
 * What only instances or a server know is left to the boot: options that come from a factory (`forRootAsync`; the
 * defaults stand in for them), handlers that a `useFactory` makes, the DataSource with its pool, and the database.
 */
export function checkOutbox(module: Type | DynamicModule): Promise<BootProblem[]> {
  const turn = last.then(() => quietly(() => problemsOf(module)));
  last = turn.catch(() => {});
  return turn;
}

/** One at a time: Nest's logger, which is silenced meanwhile and put back, is one for the whole process. */
let last: Promise<unknown> = Promise.resolve();

async function problemsOf(module: Type | DynamicModule): Promise<BootProblem[]> {
  let app: INestApplicationContext;
  try {
    app = await NestFactory.createApplicationContext(module, { preview: true, logger: false, abortOnError: false });
  } catch (error) {
    // Nest loads modules side by side: those beside the one that failed are still on their way, and would log.
    await setImmediate();
    return [{ check: 'graph', message: `Nest cannot build the application: ${(error as Error).message}` }];
  }
  try {
    return await look(app.get(ModulesContainer));
  } finally {
    await app.close();
  }
}

async function look(modules: ModulesContainer): Promise<BootProblem[]> {
  const roots = rootsIn(modules);
  if (roots === 0)
    return [{ check: 'forRoot', message: 'no module of this app imports OutboxModule.forRoot (or forRootAsync)' }];
  const settings = new OutboxSettings(optionsIn(modules), postgres());
  const catalog = new KnownEvents();
  const registry = new SubscriptionRegistry();
  // Made by hand: those in the graph are previews, without what their constructors would have been given.
  const discovery = new DiscoveryService(modules);
  for (const { instance } of discovery.getProviders())
    if (instance instanceof DeclaredManifest) catalog.add(instance.manifest);
  const providers = new ProviderScan(discovery);
  new SubscriptionExplorer(providers, settings, registry, catalog).explore();
  const jobs = new JobRegistry();
  new PeriodicJobExplorer(providers, settings, jobs).explore();
  return [...(await checkGraph({ settings, catalog, registry, jobs, roots }, () => {}))];
}

function optionsIn(modules: ModulesContainer): OutboxOptions {
  const root = [...modules.values()].find((module) => module.metatype === OutboxModule);
  const options: unknown = root?.providers.get(RAW_OPTIONS)?.instance;
  // A factory may give tenants; that there are none is for the boot to say.
  return typeof options === 'object' && options !== null ? options : { tenancy: { list: async () => [] } };
}

async function quietly<T>(work: () => Promise<T>): Promise<T> {
  const before = NestLogger.current();
  try {
    return await work();
  } finally {
    Logger.overrideLogger(before ?? false);
  }
}

class NestLogger extends Logger {
  static current(): LoggerService | undefined {
    return NestLogger.staticInstanceRef;
  }
}
