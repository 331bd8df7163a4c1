import type { NamedClass, ProviderScan } from '../core/provider-scan.js';
import type { KnownEvents } from '../events/known-events.js';
import type { OutboxSettings } from '../outbox.options.js';
import { subscriptionsOf } from './subscription.accessor.js';
import type { SubscriptionRegistry } from './subscription.registry.js';
import { resolveSubscription } from './subscription.resolver.js';

/** Pairs the methods of live instances with what `@Subscribe` says of them. */
export class SubscriptionExplorer {
  constructor(
    private readonly providers: ProviderScan,
    private readonly settings: OutboxSettings,
    private readonly registry: SubscriptionRegistry,
    private readonly known: KnownEvents,
  ) {}

  explore(): void {
    this.providers.visit({
      instance: (instance, type) => this.instance(instance, type),
      notStatic: (type) => this.notStatic(type),
      again: (type, before, here) => this.again(type, before, here),
    });
  }

  private instance(instance: object, type: NamedClass): void {
    for (const metadata of subscriptionsOf(type)) {
      const { subscription, problems } = resolveSubscription(instance, type.name, metadata, this.settings, this.known);
      for (const { check, message } of problems) this.registry.problem(check, message);
      this.registry.add(subscription);
    }
  }

  /** Two instances of one class would be two handlers of each of its durables. */
  private again(type: NamedClass, before: string, here: string): void {
    if (subscriptionsOf(type).length === 0) return;
    this.registry.problem(
      'providers',
      `${type.name} has subscriptions and is provided twice, in ${before} and ${here}: there are two instances of it, and each of its durables would have two handlers. Provide it in one module, export it there, and import that module where it is injected`,
    );
  }

  private notStatic(type: NamedClass): void {
    for (const { durable, method } of subscriptionsOf(type)) {
      this.registry.problem(
        'scope',
        `${type.name}.${method} (durable '${durable}') belongs to a request-scoped or transient provider, and no request is there when an event is handled; make ${type.name} and what it injects singletons`,
      );
    }
  }
}
