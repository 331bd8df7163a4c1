import type { OutboxEvent } from '../core/envelope.js';
import type { EventDefinition } from '../events/define-event.js';
import type { DelayOf } from '../outbox.option-checker.js';
import type { DeliveryContext } from './delivery-context.js';

/** A subscription, resolved: everything the consumer needs to run it. */
export interface Subscription {
  readonly durable: string;
  /** The types and patterns it covers; `formerly`: the names a type had before. */
  readonly types: readonly { readonly pattern: string; readonly formerly: readonly string[] }[];
  /** Names the durable had before. */
  readonly formerly: readonly string[];
  /** `Class.method`, for people. */
  readonly where: string;
  readonly maxAttempts: number;
  readonly delayOf: DelayOf;
  readonly timeoutMs: number;
  /** Handlers of this durable at once; `undefined`: no limit of its own. */
  readonly concurrency: number | undefined;
  readonly from: 'registration' | 'beginning';
  covers(type: string): boolean;
  /** The definition to check a payload against, if there is one. */
  definition(type: string): EventDefinition | undefined;
  run(event: OutboxEvent, context: DeliveryContext): unknown;
}
