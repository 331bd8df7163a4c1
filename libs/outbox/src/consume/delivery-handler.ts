import { setTimeout as pause } from 'node:timers/promises';
import { jittered } from '../core/backoff.js';
import type { Delivery } from '../core/envelope.js';
import { CancelledError } from '../outbox.inspect-errors.js';
import { HandlerTransaction } from '../transactions/handler-transaction.js';
import { DeliveryAttempt } from './delivery-attempt.js';
import type { HandlerParts } from './handler-parts.js';
import type { Outcome, Shift } from './handling.js';
import type { Subscription } from './subscription.js';

/** A delivery under way. */
export interface Handling {
  readonly outcome: Promise<Outcome>;
  /** Resolves when the user's method has really ended; until then its slot is taken. */
  ended(): Promise<void>;
  /** The event was cancelled: abort the signal. What the handler throws from now on ends the delivery as cancelled. */
  cancel(): void;
  /** No time is left: abort the signal and end the connection; what the handler did is rolled back, uncharged. */
  abandon(reason: Error): void;
}

/** What others have to say while a delivery is handled. */
interface Told {
  readonly stopping: () => boolean;
  readonly cancelled: () => boolean;
}

/** Serialization failures and deadlocks of one delivery before they count as a failed attempt. */
const conflictTries = 5;

/**
 * How a delivery is handled. Three round trips beside the handler's own:
 *
 *   [BEGIN][claim][SAVEPOINT] ──▶ handler ──▶ [RELEASE][COMMIT], proved by its tag
 *        │ not ours any more: dropped          │ COMMIT refused: [ROLLBACK][record]
 *        │ handled, or event gone: settled     └ threw: [ROLLBACK TO][record][COMMIT]
 *        └ busy, 55P03: again in 1 to 5 s
 *
 * What is recorded of one that threw: an attempt and its next due time, a snooze, a dead letter; or, when somebody cancelled the
 * event meanwhile and had its signal aborted, that it was cancelled. One that returns all the same is handled.
 *
 * The primary key of the mark decides every race, and the database's clock every due time.
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | before the claim | the row, leased to a dead worker | a sweep frees it: one interruption more |
 * | in the handler | the same: Postgres rolled the claim and the effects back | the same |
 * | during COMMIT | mark and effects together, or neither; the row is gone exactly when the mark is there | nobody, or the same |
 * | after COMMIT | mark and effects; nothing else is owed for a row | nobody |
 * | connection only, database alive | the row, leased to a live worker | this process: one interruption more |
 * | connection and database | the same | this process when it has a new number, or a sweep; this process charges nothing |
 */
export class DeliveryHandler {
  constructor(private readonly parts: HandlerParts) {}

  handle(delivery: Delivery, subscription: Subscription, stopping: () => boolean): Handling {
    let current: DeliveryAttempt | undefined;
    let cancelled: CancelledError | undefined;
    const told = { stopping, cancelled: () => cancelled !== undefined };
    const outcome = this.tries(delivery, subscription, told, (attempt) => {
      current = attempt;
      // A further try of one that was cancelled meanwhile, or a first one that waited for its connection.
      if (cancelled) attempt.run.abort(cancelled);
    });
    return {
      outcome,
      ended: async () => current?.run.settled,
      cancel: () => {
        cancelled ??= new CancelledError(subscription.durable, delivery.eventId);
        current?.run.abort(cancelled);
      },
      abandon: (reason) => current?.abandon(reason),
    };
  }

  private async tries(
    delivery: Delivery,
    subscription: Subscription,
    told: Told,
    started: (attempt: DeliveryAttempt) => void,
  ): Promise<Outcome> {
    for (let conflicts = 0; ; conflicts++) {
      const shift: Shift = {
        get stopping() {
          return told.stopping();
        },
        get cancelled() {
          return told.cancelled();
        },
        lastTry: conflicts >= conflictTries,
      };
      const outcome = await this.once(delivery, subscription, shift, started);
      if (outcome !== 'conflict') return outcome;
      await pause(jittered(20 * 2 ** conflicts));
      // Abandoned meanwhile: there is no time for another try.
      if (told.stopping()) {
        await this.parts.recorder.giveBack([delivery]);
        return 'uncharged';
      }
    }
  }

  private async once(
    delivery: Delivery,
    subscription: Subscription,
    shift: Shift,
    started: (attempt: DeliveryAttempt) => void,
  ): Promise<Outcome> {
    let transaction: HandlerTransaction;
    try {
      transaction = await HandlerTransaction.open(this.parts.database, subscription.durable);
    } catch (error) {
      this.parts.throttled.warn(
        'open',
        `no connection for the handler of '${subscription.durable}': ${(error as Error).message}`,
      );
      await this.parts.recorder.postpone(delivery, jittered(1_000));
      return 'postponed';
    }
    // The stop may have come while the pool was waited for.
    if (shift.stopping) {
      await transaction.release(true);
      await this.parts.recorder.giveBack([delivery]);
      return 'uncharged';
    }
    const attempt = new DeliveryAttempt(this.parts, transaction, delivery, subscription, shift);
    started(attempt);
    try {
      return await attempt.handle();
    } finally {
      attempt.over = true;
      await transaction.release(attempt.clean);
    }
  }
}
