import type { OutboxEvent } from '../core/envelope.js';
import type { EventDefinition } from './define-event.js';
import type { EventCatalog, EventName, EventPattern } from './event-catalog.js';

/** How an event type is named in code: by its definition, or by its name. */
export type EventRef = EventDefinition | EventName;

/** What a subscription may name: types, or a pattern. */
export type SubscriptionRef = EventRef | EventPattern;

/** What `publish` takes as the payload of `R`. */
export type PayloadOf<R> =
  R extends EventDefinition<string, infer In> ? In : R extends keyof EventCatalog ? EventCatalog[R] : unknown;

/**
 * The event that a handler of `R` gets; of several types, any of theirs. Of a name without a known payload, `never`: the
 * handler may then say what it expects.
 */
export type EventOf<R> = R extends readonly (infer E)[]
  ? EventOf<E>
  : R extends EventDefinition<string, infer _, infer Out>
    ? OutboxEvent<unknown extends Out ? never : Out>
    : R extends keyof EventCatalog
      ? OutboxEvent<EventCatalog[R]>
      : OutboxEvent<never>;

/** The name of a type; what is neither a name nor a definition comes back as it is, to be refused by its looks. */
export function typeOf(ref: EventRef): string {
  return typeof ref === 'object' && ref !== null ? ref.type : ref;
}
