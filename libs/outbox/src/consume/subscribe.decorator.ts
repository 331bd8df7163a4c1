import type { Duration } from '../core/duration.js';
import type { OutboxEvent } from '../core/envelope.js';
import type { Backoff } from '../outbox.option-checker.js';
import type { DeliveryContext } from './delivery-context.js';

export interface SubscribeOptions {
  /** Handlers of this durable at once in one process. Default: as many as the process runs at once. */
  readonly concurrency?: number;
  /** Attempts in all, the first included. Default: `handlers.maxAttempts`, 10. */
  readonly maxAttempts?: number;
  /** Delays between attempts. Default: `handlers.backoff`. */
  readonly backoff?: Backoff;
  /** How long one run may take. Default: `handlers.timeout`, 30 s. */
  readonly timeout?: Duration;
  /** Where a new durable, or a new type of one, begins. Default `registration`: nothing of the past. */
  readonly from?: 'registration' | 'beginning';
}

export interface SubscriptionMetadata {
  readonly method: string;
  readonly event: string;
  readonly durable: string;
  readonly options: SubscribeOptions;
}

/** On the class, not on the function: a decorator above or below may replace the function and lose what it carried. */
export const subscriptionsKey = Symbol.for('nestjs-outbox:subscriptions');

type Handler = (event: OutboxEvent<never>, context: DeliveryContext) => unknown;

/**
 * Makes a method of a provider or controller the handler of `event` under the lasting name `durable`. All replicas
 * share a durable: each event goes to one of them. Different durables are different pieces of work.
 *
 * The method runs in a transaction of its own, scoped to the event's tenant; what it writes through `ctx.manager`
 * commits together with the mark that says "handled". It is found at bootstrap; what is wrong with it is in the
 * report of the boot gate.
 */
export function Subscribe(event: string, durable: string, options: SubscribeOptions = {}) {
  return <M extends Handler>(
    target: object,
    method: string | symbol,
    _descriptor: TypedPropertyDescriptor<M>,
  ): void => {
    const type = target.constructor as { [subscriptionsKey]?: readonly SubscriptionMetadata[] };
    // A new list on this very class: pushing into an inherited one would subscribe the parent, too.
    const own = Object.hasOwn(type, subscriptionsKey) ? (type[subscriptionsKey] ?? []) : [];
    const entry = { method: String(method), event, durable, options };
    Object.defineProperty(type, subscriptionsKey, { value: [...own, entry], configurable: true });
  };
}
