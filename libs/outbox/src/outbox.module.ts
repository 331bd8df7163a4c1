import {
  type DynamicModule,
  type InjectionToken,
  Logger,
  Module,
  type ModuleMetadata,
  type OptionalFactoryDependency,
  type Provider,
} from '@nestjs/common';
import { DiscoveryModule, DiscoveryService, LazyModuleLoader, ModuleRef, ModulesContainer } from '@nestjs/core';
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { getDataSourceToken } from '@nestjs/typeorm';
import type { DataSource } from 'typeorm';
import { EventPublisher } from './events/event-publisher.js';
import { type EventManifest, KnownEvents } from './events/known-events.js';
import { OutboxHealth } from './inspect/health.service.js';
import { OutboxInspector } from './inspect/inspector.js';
import { OutboxLifecycle } from './outbox.lifecycle.js';
import { type OutboxOptions, OutboxSettings } from './outbox.options.js';
import { type OutboxParts, wire } from './outbox.wiring.js';
import { DeadLetters } from './recover/dead-letters.service.js';
import { Durables } from './recover/durables.service.js';
import { Outbox } from './transactions/outbox.js';
import { postgres } from './transports/postgres/postgres.transport.js';

/** Beside the options: what has to be known before they are. */
export interface OutboxRootOptions extends OutboxOptions {
  /** The name of the DataSource whose transactions carry the events. Default: the unnamed one. */
  readonly dataSource?: string;
}

export interface OutboxAsyncOptions extends Pick<ModuleMetadata, 'imports'> {
  readonly dataSource?: string;
  readonly inject?: readonly (InjectionToken | OptionalFactoryDependency)[];
  // biome-ignore lint/suspicious/noExplicitAny: the arguments are whatever `inject` names; Nest's own factories type them so.
  readonly useFactory: (...args: any[]) => OutboxOptions | Promise<OutboxOptions>;
}

/** The options as they were given; in a preview (`checkOutbox`) they are there when they are a value. */
export const RAW_OPTIONS = Symbol('nestjs-outbox options');
const PARTS = Symbol('nestjs-outbox parts');

@Module({})
export class OutboxModule {
  /** Once, in the root module. Global. Every option has a default; see `OutboxOptions`. */
  static forRoot(options: OutboxRootOptions = {}): DynamicModule {
    const { dataSource, ...rest } = options;
    return root({ provide: RAW_OPTIONS, useValue: rest }, dataSource);
  }

  /** The same with options from a factory; `dataSource` stands beside it, because it is needed to build the module. */
  static forRootAsync(options: OutboxAsyncOptions): DynamicModule {
    const { dataSource, imports, inject, useFactory } = options;
    return root({ provide: RAW_OPTIONS, useFactory, inject: [...(inject ?? [])] }, dataSource, imports);
  }

  /** A feature module's manifest: the types it emits, and those it handles that another app publishes. */
  static forFeature(manifest: EventManifest): DynamicModule {
    const provide = Symbol('nestjs-outbox manifest');
    return {
      module: OutboxFeatureModule,
      providers: [
        { provide, useFactory: (catalog: KnownEvents) => catalog.add(manifest), inject: [KnownEvents] },
        { provide: Symbol('nestjs-outbox declared'), useValue: new DeclaredManifest(manifest) },
      ],
    };
  }
}

/** A manifest as a value, which a preview can read: there no factory runs. */
export class DeclaredManifest {
  constructor(readonly manifest: EventManifest) {}
}

/** A class of its own, so that features are not taken for further roots. */
@Module({})
class OutboxFeatureModule {}

function root(
  options: Provider,
  dataSource: string | undefined,
  imports: ModuleMetadata['imports'] = [],
): DynamicModule {
  return {
    module: OutboxModule,
    global: true,
    imports: [DiscoveryModule, ...imports],
    providers: [
      options,
      KnownEvents,
      {
        provide: OutboxSettings,
        useFactory: (raw: OutboxOptions) => new OutboxSettings(raw, postgres()),
        inject: [RAW_OPTIONS],
      },
      {
        provide: PARTS,
        useFactory: (
          settings: OutboxSettings,
          source: DataSource,
          catalog: KnownEvents,
          discovery: DiscoveryService,
          modules: ModulesContainer,
          lazy: LazyModuleLoader,
          moduleRef: ModuleRef,
        ) => {
          lastUpFirstDown(modules);
          return wire({
            settings,
            dataSource: source,
            catalog,
            discovery,
            roots: () => rootsIn(modules),
            scheduled: () => schedulerRegistry(moduleRef, lazy),
            log: new Logger('Outbox'),
          });
        },
        inject: [
          OutboxSettings,
          getDataSourceToken(dataSource),
          KnownEvents,
          DiscoveryService,
          ModulesContainer,
          LazyModuleLoader,
          ModuleRef,
        ],
      },
      { provide: EventPublisher, useFactory: (parts: OutboxParts) => parts.publisher, inject: [PARTS] },
      { provide: Outbox, useFactory: (parts: OutboxParts) => parts.outbox, inject: [PARTS] },
      { provide: DeadLetters, useFactory: (parts: OutboxParts) => parts.deadLetters, inject: [PARTS] },
      { provide: OutboxHealth, useFactory: (parts: OutboxParts) => parts.health, inject: [PARTS] },
      { provide: OutboxInspector, useFactory: (parts: OutboxParts) => parts.inspector, inject: [PARTS] },
      { provide: Durables, useFactory: (parts: OutboxParts) => parts.durables, inject: [PARTS] },
      { provide: OutboxLifecycle, useFactory: (parts: OutboxParts) => parts.lifecycle, inject: [PARTS] },
    ],
    exports: [Outbox, EventPublisher, DeadLetters, Durables, OutboxHealth, OutboxInspector, KnownEvents],
  };
}

/**
 * Nest runs the hooks of start from the far modules to the near ones, those of the end the other way, and holds global
 * modules for the farthest: handlers would begin before the application is up, and go on (and be charged for failing)
 * while its destroy hooks take away what they need. The distance is fixed at the first hook, after this.
 */
function lastUpFirstDown(modules: ModulesContainer): void {
  for (const module of modules.values()) if (module.metatype === OutboxModule) module.distance = -1;
}

/**
 * The app's own registry, or that of a `ScheduleModule` loaded for it. Not imported by `forRoot`: an app that imports it
 * itself would have two of them, and each would run all of its `@Cron` methods.
 */
async function schedulerRegistry(moduleRef: ModuleRef, lazy: LazyModuleLoader): Promise<SchedulerRegistry> {
  try {
    return moduleRef.get(SchedulerRegistry, { strict: false });
  } catch {
    const nothingOfTheApp = { cronJobs: false, intervals: false, timeouts: false };
    const loaded = await lazy.load(() => ScheduleModule.forRoot(nothingOfTheApp), { logger: false });
    return loaded.get(SchedulerRegistry);
  }
}

/** How many times `forRoot` or `forRootAsync` is part of the app. */
export function rootsIn(modules: ModulesContainer): number {
  return [...modules.values()].filter((module) => module.metatype === OutboxModule).length;
}
