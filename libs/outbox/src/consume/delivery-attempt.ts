import { databaseTrouble, errorCode } from '../core/database-errors.js';
import type { Delivery, OutboxEvent } from '../core/envelope.js';
import { checkPayload } from '../events/payload-check.js';
import { HandlerTimeoutError, InterruptedError, PayloadMismatchError } from '../outbox.errors.js';
import { deadFrom } from '../tables/deliveries.table.js';
import { bucketOf } from '../tables/schema/schema-versions.js';
import type { Bound } from '../tables/wire/statement.js';
import type { HandlerTransaction } from '../transactions/handler-transaction.js';
import { adoption } from './adoption.js';
import { type Decision, decide } from './decision.js';
import { takeClaim } from './delivery-claim.js';
import type { DeliveryContext } from './delivery-context.js';
import type { HandlerParts } from './handler-parts.js';
import { HandlerRun } from './handler-run.js';
import type { Claimed, Outcome, Shift } from './handling.js';
import type { Subscription } from './subscription.js';

/** One try at one delivery, in one transaction. See `delivery-handler.ts` for the states and what a crash leaves. */
export class DeliveryAttempt {
  readonly run = new HandlerRun();
  /** The connection may go back to the pool. */
  clean = false;
  /** The connection may be somebody else's by now. */
  over = false;
  private pid: number | undefined;
  private nestedLeftOpen = false;
  private readonly bucket: number;

  constructor(
    private readonly parts: HandlerParts,
    private readonly transaction: HandlerTransaction,
    private readonly delivery: Delivery,
    private readonly subscription: Subscription,
    private readonly shift: Shift,
  ) {
    this.bucket = bucketOf(delivery.eventId);
  }

  async handle(): Promise<Outcome> {
    const { claimed: claim, clean } = await takeClaim(this.parts, this.transaction, this.delivery, this.subscription);
    this.clean = clean;
    if (typeof claim === 'string') return claim;
    this.clean = false;
    this.pid = claim.pid;
    if (claim.interruptions >= deadFrom) {
      return this.inside(claim, { kind: 'dead' }, new InterruptedError(this.subscription.durable, claim.interruptions));
    }
    const result = await this.run.run(
      () => this.work(claim),
      this.subscription.timeoutMs,
      () => new HandlerTimeoutError(this.subscription.durable, claim.event.id, this.subscription.timeoutMs),
    );
    if (result.kind === 'timeout') return this.timedOut(claim, result.error);
    if (this.transaction.connectionLost) return this.lost();
    if (result.kind === 'threw') return this.failed(claim, result.error);
    return this.commit(claim);
  }

  /** No time is left. Without its backend's end a long statement would keep the delivery locked to its own end. */
  abandon(reason: Error): void {
    if (!this.over) {
      if (this.pid !== undefined) void this.parts.recorder.terminate(this.pid);
      // The connection first: what follows then finds it lost and charges nothing.
      this.transaction.abandon();
    }
    this.run.abandon(reason);
  }

  private work(claim: Claimed): Promise<void> {
    const { event } = claim;
    return this.transaction.enclose(this.parts.follower, event.tenantId, async () =>
      this.subscription.run(await this.checked(event), this.context(claim)),
    );
  }

  /** The event as the handler's schema returns it; a mismatch is a failure like any other. */
  private async checked(event: OutboxEvent): Promise<OutboxEvent> {
    const result = await checkPayload(this.subscription.definition(event.type), event.payload);
    if ('value' in result) return { ...event, payload: result.value };
    throw new PayloadMismatchError(this.subscription.durable, event.type, event.id, result.path, result.problem);
  }

  private async commit(claim: Claimed): Promise<Outcome> {
    try {
      this.transaction.seal();
    } catch (error) {
      this.nestedLeftOpen = true;
      return this.afterwards(claim, this.decide(claim, error), error);
    }
    try {
      await this.transaction.commit();
    } catch (error) {
      return this.refused(claim, error);
    }
    this.clean = true;
    this.parts.commits.committed(this.transaction.scope.runner);
    await this.tellSubscribers('AfterTransactionCommit');
    return 'handled';
  }

  private async tellSubscribers(event: 'AfterTransactionCommit' | 'AfterTransactionRollback'): Promise<void> {
    const error = await this.transaction.announceEnd(event);
    if (error === undefined) return;
    this.parts.throttled.warn(
      'subscriber',
      `a TypeORM subscriber failed after a handler's transaction: ${String(error)}`,
    );
  }

  private async failed(claim: Claimed, error: unknown): Promise<Outcome> {
    try {
      this.transaction.seal();
    } catch (nested) {
      this.nestedLeftOpen = true;
      // The handler's own error says more than what it left behind.
      return this.afterwards(claim, this.decide(claim, error ?? nested), error ?? nested);
    }
    if (this.triesAgain(error)) return this.conflict();
    return this.inside(claim, this.decide(claim, error), error);
  }

  /** COMMIT was refused, or its answer never came. */
  private async refused(claim: Claimed, error: unknown): Promise<Outcome> {
    if (this.transaction.connectionLost || databaseTrouble(error) === 'outage') return this.lost();
    if (this.triesAgain(error)) return this.conflict();
    return this.afterwards(claim, this.decide(claim, error), error);
  }

  private triesAgain(error: unknown): boolean {
    return isConflict(error) && !this.shift.lastTry && !this.shift.cancelled;
  }

  private async conflict(): Promise<Outcome> {
    await this.after(undefined);
    return 'conflict';
  }

  private decide(claim: Claimed, error: unknown): Decision {
    const { attempt, snoozes } = claim;
    const { stopping, cancelled } = this.shift;
    return decide({ error, attempt, snoozes, stopping, cancelled }, this.subscription);
  }

  /** Behind ROLLBACK TO, in the claim's own transaction. */
  private async inside(claim: Claimed, decision: Decision, error: unknown): Promise<Outcome> {
    if (decision.kind === 'uncharged') return this.afterwards(claim, decision, error);
    let rowCount: number;
    try {
      const record = this.parts.records.inside(this.bucket, this.delivery, claim, decision, error);
      ({ rowCount } = await this.transaction.recordInside(record));
    } catch (trouble) {
      if (this.transaction.connectionLost || databaseTrouble(trouble) === 'outage') return this.lost();
      return this.afterwards(claim, decision, error);
    }
    this.clean = true;
    await this.tellSubscribers('AfterTransactionRollback');
    return this.parts.records.tell(this.subscription, claim, decision, error, rowCount);
  }

  /** The transaction is over or not worth keeping: ROLLBACK, then record on the row that came back. */
  private async afterwards(claim: Claimed, decision: Decision, error: unknown): Promise<Outcome> {
    const record = this.parts.records.after(this.bucket, this.delivery, claim, decision, error);
    const rowCount = await this.after(record);
    if (rowCount === undefined) return 'interrupted';
    return this.parts.records.tell(this.subscription, claim, decision, error, rowCount);
  }

  /** `undefined` when the connection was lost on the way; the delivery has then been released. */
  private async after(record: Bound | undefined): Promise<number | undefined> {
    try {
      const { database } = this.parts;
      const { rowCount } = await (record
        ? this.transaction.recordAfter(...adoption(database, [this.delivery]), record)
        : this.transaction.recordAfter(database.nothing()));
      if (record) this.delivery.message?.ack();
      // A nested transaction that was not awaited may still send: such a connection never goes back.
      this.clean = !this.nestedLeftOpen;
      await this.tellSubscribers('AfterTransactionRollback');
      return rowCount;
    } catch {
      await this.lost();
      return undefined;
    }
  }

  private async lost(): Promise<Outcome> {
    if (!this.shift.stopping) {
      await this.parts.recorder.interrupted(this.delivery);
      return 'interrupted';
    }
    await this.parts.recorder.giveBack([this.delivery]);
    return 'uncharged';
  }

  private async timedOut(claim: Claimed, error: HandlerTimeoutError): Promise<Outcome> {
    this.transaction.scope.close();
    await this.parts.recorder.terminate(claim.pid);
    this.transaction.abandon();
    const decision = this.decide(claim, error);
    const rowCount = await this.parts.recorder.record(
      this.delivery,
      this.parts.records.after(this.bucket, this.delivery, claim, decision, error),
    );
    return this.parts.records.tell(this.subscription, claim, decision, error, rowCount);
  }

  private context(claim: Claimed): DeliveryContext {
    const { durable, maxAttempts } = this.subscription;
    const { run } = this;
    return {
      manager: this.transaction.manager,
      tenantId: claim.event.tenantId,
      attempt: claim.attempt,
      isLastAttempt: claim.attempt >= maxAttempts,
      get signal() {
        return run.signal;
      },
      idempotencyKey: `${claim.event.id}:${durable}`,
      durable,
    };
  }
}

function isConflict(error: unknown): boolean {
  const code = errorCode(error);
  return code === '40001' || code === '40P01';
}
