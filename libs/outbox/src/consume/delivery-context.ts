import type { EntityManager } from 'typeorm';

/** What a handler gets beside the event. */
export interface DeliveryContext {
  /** The handler's transaction: what is written through it commits with the mark, or not at all. */
  readonly manager: EntityManager;
  readonly tenantId: string | null;
  /** From 1. Interrupted runs and snoozes are not counted. */
  readonly attempt: number;
  /** Whether a failure now makes the delivery a dead letter. */
  readonly isLastAttempt: boolean;
  /**
   * Aborts at the timeout, when the process has no more time to drain, and when somebody cancels the event with `abort`
   * (its reason is a `CancelledError` then).
   */
  readonly signal: AbortSignal;
  /** Event id and durable: the same at every attempt, for effects outside the database. */
  readonly idempotencyKey: string;
  readonly durable: string;
}
