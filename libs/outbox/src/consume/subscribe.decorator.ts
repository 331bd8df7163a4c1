import type { Duration } from '../core/duration.js';
import type { EventDefinition } from '../events/define-event.js';
import type { EventOf, SubscriptionRef } from '../events/event-ref.js';
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
  /**
   * Where a new durable, or a new type of one, begins. `registration`: nothing of the past, the default for events.
   * `beginning`: also what is still there, the default for commands.
   */
  readonly from?: 'registration' | 'beginning';
  /** Names this durable had before: it takes over their deliveries and marks, and nothing is lost or handled again. */
  readonly formerly?: readonly string[];
}

export interface SubscriptionMetadata {
  readonly method: string;
  readonly events: readonly (EventDefinition | string)[];
  readonly durable: string;
  readonly options: SubscribeOptions;
}

/** On the class, not on the function: a decorator above or below may replace the function and lose what it carried. */
export const subscriptionsKey = Symbol.for('nestjs-outbox:subscriptions');

type Handler<R> = (event: EventOf<R>, context: DeliveryContext) => unknown;

/**
 * Makes a method of a provider or controller the handler of `events` (a type, several, or a pattern such as
 * `billing.*.*`) under the lasting name `durable`. All replicas share a durable: each event goes to one of them.
 * Different durables are different pieces of work; a durable belongs to one method.
 *
 * The method runs in a transaction of its own, scoped to the event's tenant; what it writes through `ctx.manager`
 * commits together with the mark that says "handled". It is found at bootstrap; what is wrong with it is in the
 * report of the boot gate.
 */
export function Subscribe<const R extends SubscriptionRef | readonly SubscriptionRef[]>(
  events: R,
  durable: string,
  options: SubscribeOptions = {},
) {
  return <M extends Handler<R>>(
    target: object,
    method: string | symbol,
    _descriptor: TypedPropertyDescriptor<M>,
  ): void => {
    // Neither is found on an instance by its name, and a handler that is not found looks like one that was not wanted.
    if (typeof target === 'function' || typeof method === 'symbol')
      throw new TypeError(
        `@Subscribe on ${String(method)} (durable '${durable}'): a handler is a method of an instance with a plain name, neither static nor named by a symbol`,
      );
    const type = target.constructor as { [subscriptionsKey]?: readonly SubscriptionMetadata[] };
    // A new list on this very class: pushing into an inherited one would subscribe the parent, too.
    const own = Object.hasOwn(type, subscriptionsKey) ? (type[subscriptionsKey] ?? []) : [];
    const list = (Array.isArray(events) ? events : [events]) as readonly (EventDefinition | string)[];
    const entry: SubscriptionMetadata = { method, events: list, durable, options };
    Object.defineProperty(type, subscriptionsKey, { value: [...own, entry], configurable: true });
  };
}
