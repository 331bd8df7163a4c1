import { setImmediate } from 'node:timers/promises';
import {
  type DynamicModule,
  type INestApplicationContext,
  Logger,
  type LoggerService,
  type Type,
} from '@nestjs/common';
import { DiscoveryService, ModulesContainer, NestFactory } from '@nestjs/core';
import type { GraphContext } from '../boot/boot-check.js';
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
  return inGraph(module, async (graph) => [...(await checkGraph(graph, () => {}))]);
}

/** Looks at the app's graph while it stands; resolves to the problem instead when there is none to look at. */
export function inGraph<T>(
  module: Type | DynamicModule,
  look: (graph: GraphContext) => Promise<T>,
): Promise<T | BootProblem[]> {
  const turn = last.then(() => quietly(() => built(module, look)));
  last = turn.catch(() => {});
  return turn;
}

/** One at a time: Nest's logger, which is silenced meanwhile and put back, is one for the whole process. */
let last: Promise<unknown> = Promise.resolve();

async function built<T>(
  module: Type | DynamicModule,
  look: (graph: GraphContext) => Promise<T>,
): Promise<T | BootProblem[]> {
  let app: INestApplicationContext;
  try {
    app = await NestFactory.createApplicationContext(module, { preview: true, logger: false, abortOnError: false });
  } catch (error) {
    // Nest loads modules side by side: those beside the one that failed are still on their way, and would log.
    await setImmediate();
    return [{ check: 'graph', message: `Nest cannot build the application: ${(error as Error).message}` }];
  }
  try {
    const modules = app.get(ModulesContainer);
    if (rootsIn(modules) === 0)
      return [{ check: 'forRoot', message: 'no module of this app imports OutboxModule.forRoot (or forRootAsync)' }];
    return await look(graphOf(modules));
  } finally {
    await app.close();
  }
}

function graphOf(modules: ModulesContainer): GraphContext {
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
  return { settings, catalog, registry, jobs, roots: rootsIn(modules) };
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
