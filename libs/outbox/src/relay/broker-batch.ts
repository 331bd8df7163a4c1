import { jittered } from '../core/backoff.js';
import { errorText } from '../core/error-text.js';
import type { ForwardCounts, OutgoingRow, SendOutcome, SendResult } from '../core/transport.js';
import type { DeadLetterNotice } from '../outbox.options.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { type LockedRow, type QueueOutlookRow, relayName } from '../tables/queue.table.js';
import { begin, commit, rollback } from '../tables/wire/control.js';
import { type Bound, interval } from '../tables/wire/statement.js';

/** A row that the broker refused this often is a dead letter of the relay (design, section 5). */
export const mostRefusals = 20;
/** Between two tries of a refused row: 1 s, 2 s, 4 s … 10 min; two and a half hours in all. */
const refusedMs = (attempts: number): number => jittered(Math.min(600_000, 1_000 * 2 ** attempts));

export interface BrokerBatchParts {
  readonly database: Database;
  readonly connection: InfrastructureConnection;
  readonly batch: number;
  readonly from: { readonly floor: string; readonly reachMs: number };
  /** The broker refused events for what they are. */
  readonly refused: (first: LockedRow, reason: string, count: number) => void;
  /** An event became a dead letter of the relay. */
  readonly gaveUp: (letter: DeadLetterNotice) => Promise<void>;
}

export interface BrokerBatchResult extends ForwardCounts {
  readonly outlook: QueueOutlookRow;
  /** More rows wait. */
  readonly more: boolean;
}

/**
 * One batch for a broker, in two round trips to the database with the broker's in between:
 *
 *   [BEGIN][outlook][lock rows] ──▶ publish ──▶ [confirmed leave the queue][refused are charged][COMMIT]
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | before or while the rows are published | the rows, in the queue; the server unlocks them with the connection, or after 15 s | the next pass publishes all of them again: the broker knows their ids |
 * | after the broker's answer, before COMMIT | the same, and the messages | the same; longer ago than the broker remembers ids, a second message finds the mark |
 * | after COMMIT | nothing is owed | – |
 */
export async function brokerBatch(
  parts: BrokerBatchParts,
  send: (events: readonly OutgoingRow[]) => Promise<SendResult>,
): Promise<BrokerBatchResult> {
  const { database, connection, batch, from } = parts;
  const { queue } = database;
  const [, looked, { rows }] = await connection.run(
    begin,
    queue.outlook(),
    queue.lock(from.floor, batch, interval(from.reachMs)),
  );
  const [outlook] = looked.rows;
  try {
    if (!outlook) throw new Error('the outlook statement returned no row');
    const result = await sent(rows, send);
    const settled = await settle(parts, rows, result.outcomes);
    if (result.trouble) throw new SettledTrouble(result.trouble);
    const locked = rows[0]?.locked ?? 0;
    return {
      outlook,
      more: locked >= batch || locked > rows.length,
      taken: settled,
      leftForTakers: 0,
      leftForOthers: 0,
    };
  } catch (error) {
    if (error instanceof SettledTrouble) throw error.trouble;
    // The transaction may be open: the next BEGIN would only warn, and go on in it.
    await connection.run(rollback).catch(() => {});
    throw error;
  }
}

/** The broker's trouble, thrown when the transaction is over. */
class SettledTrouble extends Error {
  constructor(readonly trouble: Error) {
    super();
  }
}

/** Rows whose event is gone (a tenant was deleted) leave the queue unsent. */
async function sent(
  rows: readonly LockedRow[],
  send: (events: readonly OutgoingRow[]) => Promise<SendResult>,
): Promise<SendResult> {
  const here = rows.filter(({ type }) => type !== null);
  const { outcomes, trouble } = here.length > 0 ? await send(here.map(outgoing)) : { outcomes: [] };
  const byId = new Map(here.map(({ id }, i) => [id, outcomes[i]] as const));
  return {
    outcomes: rows.map((row) => (row.type === null ? { kind: 'sent' } : (byId.get(row.id) ?? { kind: 'unsent' }))),
    ...(trouble ? { trouble } : {}),
  };
}

async function settle(
  { database, connection, refused: tell, gaveUp }: BrokerBatchParts,
  rows: readonly LockedRow[],
  outcomes: readonly SendOutcome[],
): Promise<number> {
  const refused = rows.flatMap((row, i) => {
    const outcome = outcomes[i];
    return outcome?.kind === 'refused' ? [{ row, reason: errorText(outcome.reason) }] : [];
  });
  const gone = rows.filter((_, i) => outcomes[i]?.kind === 'sent');
  const givenUp = refused.filter(({ row }) => row.attempts + 1 >= mostRefusals);
  const later = refused.filter(({ row }) => row.attempts + 1 < mostRefusals);
  const [first] = later;
  if (first) tell(first.row, first.reason, later.length);
  const { queue } = database;
  const statements: Bound[] = [];
  if (gone.length > 0)
    statements.push(
      queue.confirm(
        gone.map(({ tid }) => tid),
        gone.map(({ id }) => id),
      ),
    );
  if (later.length > 0)
    statements.push(
      queue.refuse(
        later.map(({ row }) => row.tid),
        later.map(({ row }) => row.id),
        later.map(({ reason }) => reason),
        later.map(({ row }) => interval(refusedMs(row.attempts))),
      ),
    );
  for (const { row, reason } of givenUp) statements.push(queue.giveUp(row.tid, row.id, reason));
  await connection.run(...statements, commit);
  // Not awaited: the application's hook may take its time, and the relay has none.
  for (const { row, reason } of givenUp) void gaveUp(letter(row, reason));
  return gone.length;
}

function outgoing(row: LockedRow): OutgoingRow {
  return {
    id: row.id,
    type: row.type ?? '',
    tenantId: row.tenant_id,
    subject: row.subject,
    payload: row.payload,
    headers: row.headers ?? {},
    occurredAt: new Date(row.created_ms),
  };
}

function letter(row: LockedRow, error: string): DeadLetterNotice {
  return {
    eventId: row.id,
    durable: relayName,
    type: row.type ?? '',
    tenantId: row.tenant_id,
    attempts: row.attempts + 1,
    error,
  };
}
