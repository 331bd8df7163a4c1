import { DiscoveryService } from '@nestjs/core';
import type { OutboxEvent } from '../core/envelope.js';
import { durableProblem, eventTypeProblem } from '../events/event-type.js';
import { OptionChecker } from '../outbox.option-checker.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { DeliveryContext } from './delivery-context.js';
import type { SubscriptionMetadata } from './subscribe.decorator.js';
import { subscriptionsOf } from './subscription.accessor.js';
import type { SubscriptionRegistry } from './subscription.registry.js';

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];

const optionKeys = ['concurrency', 'maxAttempts', 'backoff', 'timeout', 'from'];

/** Pairs the methods of live instances with their metadata. Scans instances: a factory's or value's class is not the token. */
export class SubscriptionExplorer {
  constructor(
    private readonly discovery: DiscoveryService,
    private readonly settings: OutboxSettings,
    private readonly registry: SubscriptionRegistry,
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
    if (typeof type !== 'function') return;
    for (const metadata of subscriptionsOf(type)) this.subscription(instance, type.name, metadata);
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
    const { method, event, durable, options } = metadata;
    const where = `${className}.${method}`;
    const check = new OptionChecker(`@Subscribe on ${where}`);
    for (const problem of [eventTypeProblem(event), durableProblem(durable)]) {
      if (problem)
        this.registry.problem(
          'names',
          `@Subscribe on ${where}: ${JSON.stringify(problem === durableProblem(durable) ? durable : event)} ${problem}`,
        );
    }
    check.keys('', options, optionKeys);
    const resolved = {
      durable,
      types: [event],
      where,
      maxAttempts: check.integer('maxAttempts', options.maxAttempts, 1, 1_000, this.settings.maxAttempts),
      delayOf: check.backoff('backoff', options.backoff) ?? this.settings.backoff,
      timeoutMs: check.duration('timeout', options.timeout, this.settings.timeoutMs),
      concurrency:
        options.concurrency === undefined ? undefined : check.integer('concurrency', options.concurrency, 1, 1_000, 1),
      from: check.oneOf('from', options.from, ['registration', 'beginning']),
      // By name and not the captured function: a decorator applied later may have replaced it.
      run: (payload: OutboxEvent, context: DeliveryContext) =>
        (instance as Record<string, (event: OutboxEvent, context: DeliveryContext) => unknown>)[method]?.(
          payload,
          context,
        ),
    };
    for (const { check: name, message } of check.problems) this.registry.problem(name, message);
    this.registry.add(resolved);
  }
}
