import type { OutboxEvent } from '../core/envelope.js';
import type { DelayOf } from '../outbox.option-checker.js';
import type { DeliveryContext } from './delivery-context.js';

/** A subscription, resolved: everything the consumer needs to run it. */
export interface Subscription {
  readonly durable: string;
  readonly types: readonly string[];
  /** `Class.method`, for people. */
  readonly where: string;
  readonly maxAttempts: number;
  readonly delayOf: DelayOf;
  readonly timeoutMs: number;
  /** Handlers of this durable at once; `undefined`: no limit of its own. */
  readonly concurrency: number | undefined;
  readonly from: 'registration' | 'beginning';
  run(event: OutboxEvent, context: DeliveryContext): unknown;
}
