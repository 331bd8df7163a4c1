import type { Delivery } from '../core/envelope.js';
import { errorText } from '../core/error-text.js';
import type { ThrottledLog } from '../core/throttled-log.js';
import type { WakeSignal } from '../core/wake-signal.js';
import type { Database } from '../tables/database.js';
import type { PerBucket } from '../tables/handled.table.js';
import { type Bound, interval, type Statement } from '../tables/wire/statement.js';
import { type DeadLetterAlert, firstLine } from './dead-letter-alert.js';
import type { Decision } from './decision.js';
import type { Claimed, Outcome } from './handling.js';
import type { Subscription } from './subscription.js';

/** Turns a decision into the statement that records it, in the two forms there are, and tells people about it. */
export class DeliveryRecords {
  constructor(
    private readonly database: Database,
    private readonly alert: DeadLetterAlert,
    private readonly throttled: ThrottledLog,
    private readonly taker: WakeSignal,
    private readonly pollMs: number,
  ) {}

  /** For the claim's own transaction: the mark becomes something else. */
  inside(
    bucket: number,
    delivery: Delivery,
    claim: Claimed,
    decision: Exclude<Decision, { kind: 'uncharged' }>,
    error: unknown,
  ): Bound {
    const { fail, snooze, dead, cancel } = this.database.handled;
    const { eventId, durable, lease } = delivery;
    const text = errorText(error);
    switch (decision.kind) {
      case 'retry':
        return of(fail, bucket)(
          eventId,
          durable,
          claim.attempt,
          text,
          lease,
          interval(decision.delayMs),
          claim.interruptions,
          claim.snoozes,
        );
      case 'snooze':
        return of(snooze, bucket)(
          eventId,
          durable,
          claim.attempt - 1,
          text,
          interval(decision.delayMs),
          claim.interruptions,
          claim.snoozes + 1,
        );
      case 'dead':
        return of(dead, bucket)(eventId, durable, claim.attempt, text, lease);
      case 'cancel':
        return of(cancel, bucket)(eventId, durable, claim.attempt);
    }
  }

  /** For after a ROLLBACK: the deliveries row is back, still leased to us, and there is no mark. */
  after(bucket: number, delivery: Delivery, claim: Claimed, decision: Decision, error: unknown): Bound {
    const { failAfter, deadAfter, cancelAfter } = this.database.handled;
    const deliveries = this.database.deliveries;
    const { eventId, durable, lease } = delivery;
    switch (decision.kind) {
      case 'retry':
        return of(failAfter, bucket)(
          eventId,
          durable,
          claim.attempt,
          errorText(error),
          lease,
          interval(decision.delayMs),
        );
      case 'snooze':
        return deliveries.snooze(eventId, durable, lease, interval(decision.delayMs));
      case 'dead':
        return of(deadAfter, bucket)(eventId, durable, claim.attempt, errorText(error), lease);
      case 'cancel':
        return of(cancelAfter, bucket)(eventId, durable, claim.attempt, lease);
      case 'uncharged':
        return deliveries.giveBack(lease, [eventId], [durable]);
    }
  }

  async tell(
    subscription: Subscription,
    claim: Claimed,
    decision: Decision,
    error: unknown,
    rowCount: number,
  ): Promise<Outcome> {
    const { durable, where, maxAttempts } = subscription;
    const text = errorText(error);
    if (rowCount === 0) {
      this.throttled.error(
        durable,
        `${where} failed on event ${claim.event.id}, but its work is committed or was taken over, so nothing is charged: ${firstLine(text)}`,
      );
      return 'settled';
    }
    // The taker sleeps until what it knew to be next; a step shorter than its poll is news to it.
    if ('delayMs' in decision && decision.delayMs < this.pollMs) this.taker.nudge();
    switch (decision.kind) {
      case 'retry':
        this.throttled.warn(
          `${durable} ${error instanceof Error ? error.name : typeof error}`,
          `${where} failed on event ${claim.event.id}, attempt ${claim.attempt} of ${maxAttempts}, next in ${decision.delayMs} ms: ${firstLine(text)}`,
        );
        return 'retry';
      case 'snooze':
        return 'snoozed';
      case 'uncharged':
        return 'uncharged';
      case 'cancel':
        return 'cancelled';
      case 'dead':
        await this.alert.raise({
          eventId: claim.event.id,
          durable,
          type: claim.event.type,
          tenantId: claim.event.tenantId,
          attempts: claim.attempt,
          error: text,
        });
        return 'dead';
    }
  }
}

function of<Row>(statements: PerBucket<Row>, bucket: number): Statement<Row> {
  const statement = statements[bucket];
  if (!statement) throw new Error(`there is no bucket ${bucket}`);
  return statement;
}
