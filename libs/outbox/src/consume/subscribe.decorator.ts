import type { Duration } from '../core/duration.js';
import { addMethodMetadata, type MethodMetadata } from '../core/method-metadata.js';
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

export interface SubscriptionMetadata extends MethodMetadata {
  readonly events: readonly (EventDefinition | string)[];
  readonly durable: string;
  readonly options: SubscribeOptions;
}

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
    const list = (Array.isArray(events) ? events : [events]) as readonly (EventDefinition | string)[];
    addMethodMetadata<SubscriptionMetadata>(
      subscriptionsKey,
      `@Subscribe (durable '${durable}')`,
      target,
      method,
      (name) => ({ method: name, events: list, durable, options }),
    );
  };
}
