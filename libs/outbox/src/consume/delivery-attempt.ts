import { databaseTrouble, errorCode } from '../core/database-errors.js';
import type { Delivery, OutboxEvent } from '../core/envelope.js';
import type { ThrottledLog } from '../core/throttled-log.js';
import { HandlerTimeoutError, InterruptedError } from '../outbox.errors.js';
import type { Database } from '../tables/database.js';
import { deadFrom } from '../tables/deliveries.table.js';
import type { ClaimRow } from '../tables/handled.table.js';
import { bucketOf } from '../tables/schema/schema-versions.js';
import type { Bound } from '../tables/wire/statement.js';
import type { CommitWatcher } from '../transactions/commit-watcher.js';
import type { HandlerTransaction } from '../transactions/handler-transaction.js';
import type { TransactionFollower } from '../transactions/transaction-follower.js';
import { type Decision, decide } from './decision.js';
import type { DeliveryContext } from './delivery-context.js';
import type { DeliveryRecords } from './delivery-records.js';
import { HandlerRun } from './handler-run.js';
import type { Claimed, Outcome, Shift } from './handling.js';
import type { LateRecorder } from './late-recorder.js';
import type { Subscription } from './subscription.js';

/** What the handler of deliveries stands on. */
export interface HandlerParts {
  readonly database: Database;
  readonly follower: TransactionFollower;
  readonly commits: CommitWatcher;
  readonly recorder: LateRecorder;
  readonly records: DeliveryRecords;
  readonly throttled: ThrottledLog;
}

/** Between a claim that was refused for the moment and its next try. */
const busyMs = (): number => 1_000 + Math.random() * 4_000;
/** A type that this process does not handle under this durable: a newer or older version of the app may. */
const foreignTypeMs = 30_000;

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
    const claim = await this.claim();
    if (typeof claim === 'string') return claim;
    if (claim.interruptions >= deadFrom) {
      return this.inside(claim, { kind: 'dead' }, new InterruptedError(this.subscription.durable, claim.interruptions));
    }
    const result = await this.run.run(
      () => this.parts.follower.within(this.transaction.scope, () => this.work(claim)),
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

  /** Runs the user's method, waits for publishes it did not await, and closes its manager. */
  private async work(claim: Claimed): Promise<void> {
    try {
      await this.subscription.run(claim.event, this.context(claim));
      await this.transaction.scope.settle();
    } finally {
      this.transaction.scope.close();
    }
  }

  private async claim(): Promise<Claimed | Outcome> {
    const { eventId, durable, lease } = this.delivery;
    const claim = this.parts.database.handled.claim[this.bucket];
    if (!claim) throw new Error(`no claim for bucket ${this.bucket}`);
    try {
      const { rows } = await this.transaction.begin(claim(eventId, durable, lease));
      return await this.read(rows[0]);
    } catch (error) {
      return this.notClaimed(error);
    }
  }

  private async read(row: ClaimRow | undefined): Promise<Claimed | Outcome> {
    if (row === undefined || row.attempt === null || !row.claimed || row.type === null) {
      // Not leased to us any more, handled already, or the event is gone: the row (if it was ours) has done its work.
      await this.transaction.commitClaim();
      this.clean = true;
      return row === undefined || row.attempt === null ? 'dropped' : 'settled';
    }
    if (!this.subscription.types.includes(row.type)) return this.foreign(row.type);
    this.pid = row.pid;
    const event: OutboxEvent = {
      id: this.delivery.eventId,
      type: row.type,
      payload: row.payload,
      tenantId: row.tenant_id,
      subject: row.subject,
      headers: row.headers ?? {},
      occurredAt: new Date(row.created_ms ?? 0),
    };
    return {
      event,
      attempt: row.attempt + 1,
      interruptions: row.interruptions ?? 0,
      snoozes: row.snoozes ?? 0,
      pid: row.pid,
    };
  }

  private async foreign(type: string): Promise<Outcome> {
    await this.rollback();
    await this.parts.recorder.postpone(this.delivery, foreignTypeMs);
    this.parts.throttled.warn(
      'foreign',
      `'${type}' waits: ${this.subscription.where} (durable '${this.subscription.durable}') does not handle that type, another version of the app may`,
    );
    return 'postponed';
  }

  /** Nothing of the handler ran: nothing is charged. */
  private async notClaimed(error: unknown): Promise<Outcome> {
    const trouble = databaseTrouble(error);
    if (trouble === 'other') {
      this.parts.throttled.error(
        'claim',
        `the claim of event ${this.delivery.eventId} failed: ${(error as Error).message}`,
      );
    }
    await this.rollback();
    // Not awaited: whoever holds a lock on the row may hold it long, and this slot is needed meanwhile.
    void this.parts.recorder.postpone(this.delivery, Math.round(busyMs()));
    return 'postponed';
  }

  /** Before a handler ran: a connection that is lost now says nothing about the event. */
  private async rollback(): Promise<void> {
    try {
      await this.transaction.recordAfter(this.parts.database.nothing());
      this.clean = true;
    } catch {
      this.clean = false;
    }
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
    return 'handled';
  }

  private async failed(claim: Claimed, error: unknown): Promise<Outcome> {
    try {
      this.transaction.seal();
    } catch (nested) {
      this.nestedLeftOpen = true;
      // The handler's own error says more than what it left behind.
      return this.afterwards(claim, this.decide(claim, error ?? nested), error ?? nested);
    }
    if (isConflict(error) && !this.shift.lastTry) return this.conflict();
    return this.inside(claim, this.decide(claim, error), error);
  }

  /** COMMIT was refused, or its answer never came. */
  private async refused(claim: Claimed, error: unknown): Promise<Outcome> {
    if (this.transaction.connectionLost || databaseTrouble(error) === 'outage') return this.lost();
    if (isConflict(error) && !this.shift.lastTry) return this.conflict();
    return this.afterwards(claim, this.decide(claim, error), error);
  }

  private async conflict(): Promise<Outcome> {
    await this.after(undefined);
    return 'conflict';
  }

  private decide(claim: Claimed, error: unknown): Decision {
    return decide(
      { error, attempt: claim.attempt, snoozes: claim.snoozes, stopping: this.shift.stopping },
      this.subscription,
    );
  }

  /** Behind ROLLBACK TO, in the claim's own transaction. */
  private async inside(claim: Claimed, decision: Decision, error: unknown): Promise<Outcome> {
    if (decision.kind === 'uncharged') return this.afterwards(claim, decision, error);
    try {
      const { rowCount } = await this.transaction.recordInside(
        this.parts.records.inside(this.bucket, this.delivery, claim, decision, error),
      );
      this.clean = true;
      return this.parts.records.tell(this.subscription, claim, decision, error, rowCount);
    } catch (trouble) {
      if (this.transaction.connectionLost || databaseTrouble(trouble) === 'outage') return this.lost();
      return this.afterwards(claim, decision, error);
    }
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
      const { rowCount } = await this.transaction.recordAfter(record ?? this.parts.database.nothing());
      // A nested transaction that was not awaited may still send: such a connection never goes back.
      this.clean = !this.nestedLeftOpen;
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
