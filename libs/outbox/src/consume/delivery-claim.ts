import { databaseTrouble } from '../core/database-errors.js';
import type { Delivery } from '../core/envelope.js';
import type { ClaimRow } from '../tables/handled.table.js';
import { bucketOf } from '../tables/schema/schema-versions.js';
import type { HandlerTransaction } from '../transactions/handler-transaction.js';
import type { HandlerParts } from './handler-parts.js';
import type { Claimed, Outcome } from './handling.js';
import type { Subscription } from './subscription.js';

/** Between a claim that was refused for the moment and its next try: 1 to 5 s. */
const busyMs = (): number => Math.round(1_000 + Math.random() * 4_000);
/**
 * A type that this process does not handle under this durable: a newer or older version of the app may. Waits half the
 * event's age, so that a type that was dropped for good does not come round every half minute for ever.
 */
const foreignMs = (createdMs: number): number => Math.min(Math.max((Date.now() - createdMs) / 2, 30_000), 3_600_000);

export interface ClaimResult {
  /** The event to handle, or what came of the delivery instead; its transaction is over then. */
  readonly claimed: Claimed | Outcome;
  /** The connection may go back to the pool as it is. */
  readonly clean: boolean;
}

/** Opens the handler's transaction with the claim. Nothing of the handler has run, so nothing here is ever charged. */
export async function takeClaim(
  parts: HandlerParts,
  transaction: HandlerTransaction,
  delivery: Delivery,
  subscription: Subscription,
): Promise<ClaimResult> {
  const { claim: ofRow, claimMessage } = parts.database.handled;
  const claim = (delivery.message ? claimMessage : ofRow)[bucketOf(delivery.eventId)];
  if (!claim) throw new Error(`there is no bucket ${bucketOf(delivery.eventId)}`);
  try {
    const { rows } = await transaction.begin(claim(delivery.eventId, delivery.durable, delivery.lease));
    const [row] = rows;
    if (!row || !isClaim(row)) {
      // Not leased to us any more, handled already, or the event is gone: the row (if it was ours) has done its work.
      await transaction.commitClaim();
      if (delivery.message && row?.attempt != null && row.type === null) unknown(parts, delivery);
      return { claimed: row?.attempt == null ? 'dropped' : 'settled', clean: true };
    }
    if (subscription.covers(row.type)) return { claimed: claimedOf(delivery, row), clean: true };
    return await foreign(parts, transaction, delivery, subscription, row);
  } catch (error) {
    return refused(parts, transaction, delivery, error);
  }
}

/** Forged, foreign, or of an event that was forgotten or never committed. */
function unknown(parts: HandlerParts, { eventId }: Delivery): void {
  parts.throttled.warn(
    'unknown',
    `a message names event ${eventId}, of which there is no row: it is acknowledged and does not run`,
  );
}

/** A row of the claim that holds an event. */
type FullClaim = ClaimRow & { readonly attempt: number; readonly type: string };

function isClaim(row: ClaimRow): row is FullClaim {
  return row.claimed && row.attempt !== null && row.type !== null;
}

function claimedOf(delivery: Delivery, row: FullClaim): Claimed {
  return {
    event: {
      id: delivery.eventId,
      type: row.type,
      payload: row.payload,
      tenantId: row.tenant_id,
      subject: row.subject,
      headers: row.headers ?? {},
      occurredAt: new Date(row.created_ms ?? 0),
    },
    attempt: row.attempt + 1,
    interruptions: row.interruptions ?? 0,
    snoozes: row.snoozes ?? 0,
    pid: row.pid,
  };
}

async function foreign(
  parts: HandlerParts,
  transaction: HandlerTransaction,
  delivery: Delivery,
  { where, durable }: Subscription,
  { type, created_ms }: FullClaim,
): Promise<ClaimResult> {
  const clean = await rolledBack(parts, transaction);
  void parts.recorder.postpone(delivery, Math.round(foreignMs(created_ms ?? 0)));
  parts.throttled.warn(
    'foreign',
    `'${type}' waits: ${where} (durable '${durable}') does not handle that type, another version of the app may`,
  );
  return { claimed: 'postponed', clean };
}

async function refused(
  parts: HandlerParts,
  transaction: HandlerTransaction,
  delivery: Delivery,
  error: unknown,
): Promise<ClaimResult> {
  const trouble = databaseTrouble(error);
  if (trouble === 'other') {
    parts.throttled.error('claim', `the claim of event ${delivery.eventId} failed: ${(error as Error).message}`);
  }
  // After a failover the old server may live on and refuse every write: such a connection never goes back to the pool.
  const clean = (await rolledBack(parts, transaction)) && trouble !== 'outage';
  // Not awaited: whoever holds a lock on the row may hold it long, and this slot is needed meanwhile.
  void parts.recorder.postpone(delivery, busyMs());
  return { claimed: 'postponed', clean };
}

async function rolledBack(parts: HandlerParts, transaction: HandlerTransaction): Promise<boolean> {
  try {
    await transaction.recordAfter(parts.database.nothing());
    return true;
  } catch {
    return false;
  }
}
