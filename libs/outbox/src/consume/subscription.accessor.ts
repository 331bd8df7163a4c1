import { methodMetadata } from '../core/method-metadata.js';
import { type SubscriptionMetadata, subscriptionsKey } from './subscribe.decorator.js';

/** The only reader of what `@Subscribe` wrote. */
export function subscriptionsOf(type: object): readonly SubscriptionMetadata[] {
  return methodMetadata<SubscriptionMetadata>(subscriptionsKey, type);
}
