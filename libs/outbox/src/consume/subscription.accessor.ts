import { type SubscriptionMetadata, subscriptionsKey } from './subscribe.decorator.js';

/** The only reader of what `@Subscribe` wrote. Subscriptions of parent classes count, unless the class says the same method anew. */
export function subscriptionsOf(type: object): readonly SubscriptionMetadata[] {
  const found = new Map<string, SubscriptionMetadata[]>();
  for (
    let current: object | null = type;
    current && current !== Function.prototype;
    current = Object.getPrototypeOf(current)
  ) {
    const own = Object.hasOwn(current, subscriptionsKey)
      ? (current as { [subscriptionsKey]: readonly SubscriptionMetadata[] })[subscriptionsKey]
      : [];
    const methods = new Set(own.map((entry) => entry.method).filter((method) => !found.has(method)));
    for (const method of methods)
      found.set(
        method,
        own.filter((entry) => entry.method === method),
      );
  }
  return [...found.values()].flat();
}
