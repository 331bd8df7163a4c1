import type { NamedClass, ProviderScan } from '../core/provider-scan.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { JobRegistry } from './job.registry.js';
import { jobsOf } from './periodic-job.accessor.js';
import { resolveJob } from './periodic-job.resolver.js';

/** Pairs the methods of live instances with what `@PeriodicJob` says of them. */
export class PeriodicJobExplorer {
  constructor(
    private readonly providers: ProviderScan,
    private readonly settings: OutboxSettings,
    private readonly registry: JobRegistry,
  ) {}

  explore(): void {
    this.providers.visit({
      instance: (instance, type) => this.instance(instance, type),
      notStatic: (type) =>
        this.refuse(
          type,
          'belongs to a request-scoped or transient provider, and no request is there when a job runs; make it and what it injects singletons',
        ),
      again: (type, before, here) =>
        this.refuse(
          type,
          `is provided twice, in ${before} and ${here}; provide ${type.name} in one module, export it there, and import that module where it is injected`,
        ),
    });
  }

  private instance(instance: object, type: NamedClass): void {
    for (const metadata of jobsOf(type)) {
      const { definition, problems } = resolveJob(instance, type.name, metadata, this.settings);
      for (const message of problems) this.registry.problem(message);
      if (definition) this.registry.add(definition);
    }
  }

  private refuse(type: NamedClass, why: string): void {
    for (const { method } of jobsOf(type)) this.registry.problem(`@PeriodicJob on ${type.name}.${method} ${why}`);
  }
}
