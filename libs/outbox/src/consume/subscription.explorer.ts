import { DiscoveryService } from '@nestjs/core';
import type { KnownEvents } from '../events/known-events.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { SubscriptionMetadata } from './subscribe.decorator.js';
import { subscriptionsOf } from './subscription.accessor.js';
import type { SubscriptionRegistry } from './subscription.registry.js';
import { resolveSubscription } from './subscription.resolver.js';

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];

/** Pairs the methods of live instances with their metadata. Scans instances: a factory's or value's class is not the token. */
export class SubscriptionExplorer {
  /** Classes, and the module in which each was met first. */
  private readonly homes = new Map<object, string>();

  constructor(
    private readonly discovery: DiscoveryService,
    private readonly settings: OutboxSettings,
    private readonly registry: SubscriptionRegistry,
    private readonly known: KnownEvents,
  ) {}

  explore(): void {
    const seen = new Set<object>();
    for (const wrapper of [...this.discovery.getProviders(), ...this.discovery.getControllers()])
      this.wrapper(wrapper, seen);
  }

  private wrapper(wrapper: Wrapper, seen: Set<object>): void {
    if (!wrapper.isDependencyTreeStatic() || wrapper.isTransient) {
      this.notStatic(wrapper);
      return;
    }
    const instance: unknown = wrapper.instance;
    // An alias (useExisting) is a second wrapper around the same instance.
    if (typeof instance !== 'object' || instance === null || seen.has(instance)) return;
    seen.add(instance);
    const type = Object.getPrototypeOf(instance)?.constructor;
    if (typeof type !== 'function' || this.providedBefore(type, wrapper)) return;
    for (const metadata of subscriptionsOf(type)) this.subscription(instance, type.name, metadata);
  }

  /** Two instances of one class would be two handlers of each of its durables. */
  private providedBefore(type: { name: string }, wrapper: Wrapper): boolean {
    const here = wrapper.host?.name ?? 'a module';
    const before = this.homes.get(type);
    if (before === undefined) this.homes.set(type, here);
    else if (subscriptionsOf(type).length > 0)
      this.registry.problem(
        'providers',
        `${type.name} has subscriptions and is provided twice, in ${before} and ${before === here ? 'once more there' : `in ${here}`}: there are two instances of it, and each of its durables would have two handlers. Provide it in one module, export it there, and import that module where it is injected`,
      );
    return before !== undefined;
  }

  private notStatic(wrapper: Wrapper): void {
    const type = wrapper.metatype;
    if (typeof type !== 'function') return;
    for (const { durable, method } of subscriptionsOf(type)) {
      this.registry.problem(
        'scope',
        `${type.name}.${method} (durable '${durable}') belongs to a request-scoped or transient provider, and no request is there when an event is handled; make ${type.name} and what it injects singletons`,
      );
    }
  }

  private subscription(instance: object, className: string, metadata: SubscriptionMetadata): void {
    const { subscription, problems } = resolveSubscription(instance, className, metadata, this.settings, this.known);
    for (const { check, message } of problems) this.registry.problem(check, message);
    this.registry.add(subscription);
  }
}
