import type { Delivery } from '../core/envelope.js';
import type { Floor } from '../core/floor.js';
import type { FanOut, ForwardCounts, OutgoingBatch, OutgoingRow, SendResult, Transport } from '../core/transport.js';
import type { DeadLetterNotice } from '../outbox.options.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { type LockedRow, scheduledChunk } from '../tables/queue.table.js';
import { interval } from '../tables/wire/statement.js';
import { brokerBatch } from './broker-batch.js';

export interface RelayPassParts {
  readonly database: Database;
  readonly connection: InfrastructureConnection;
  readonly transport: Transport;
  readonly floor: Floor;
  readonly batch: number;
  /** This worker's number; `undefined` while it holds no lock, and then nothing is leased to it. */
  readonly worker: number | undefined;
  /** A broker refused events for what they are; they are tried again, slower each time. */
  readonly refused: (first: LockedRow, reason: string, count: number) => void;
  /** A broker refused an event for good. */
  readonly gaveUp: (letter: DeadLetterNotice) => Promise<void>;
}

export interface RelayPassCounts {
  readonly taken: number;
  readonly leftForTakers: number;
  readonly leftForOthers: number;
  /** The batch came back full: more rows wait. */
  readonly full: boolean;
  /** Milliseconds until the next row is due, if one waits. */
  readonly nextMs: number | undefined;
}

/**
 * One pass of the relay, without timers: due rows leave the queue and are carried by the transport.
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | before the fan-out's message is complete | the rows, in the queue | the next pass, anybody's |
 * | inside the message (one implicit transaction) | the rows, in the queue: taking and writing commit together | the next pass |
 * | after it, before the rows were handed over | deliveries leased to a dead worker | the sweep, within a second or two |
 *
 * With a broker: see `broker-batch.ts`.
 */
export async function relayPass(parts: RelayPassParts): Promise<RelayPassCounts> {
  const batch = new QueueBatch(parts);
  const moved = batch.full ? await moveScheduled(parts) : 0;
  const counts = await parts.transport.forward(batch);
  // As many as one statement moves: more are due, and only a pass that reads from the start looks for them.
  const moreScheduled = moved >= scheduledChunk;
  if (moreScheduled) parts.floor.reset();
  return {
    taken: counts.taken,
    leftForTakers: counts.leftForTakers,
    leftForOthers: counts.leftForOthers,
    full: moreScheduled || batch.more,
    nextMs: batch.nextMs,
  };
}

async function moveScheduled({ connection, database }: RelayPassParts): Promise<number> {
  const [{ rows }] = await connection.run(database.queue.moveScheduled());
  return rows[0]?.moved ?? 0;
}

class QueueBatch implements OutgoingBatch {
  nextMs: number | undefined;
  /** More rows wait: they are carried at once. */
  more = false;
  private readonly from;

  constructor(private readonly parts: RelayPassParts) {
    this.from = parts.floor.next();
  }

  /** Whether it reads from the start. */
  get full(): boolean {
    return this.from.full;
  }

  async fanOut(room: ReadonlyMap<number, number>): Promise<FanOut> {
    const { database, connection, floor, batch, worker } = this.parts;
    const { from } = this;
    const [, { rows }] = await connection.run(
      database.queue.fanOutLock(),
      database.queue.fanOut(
        from.floor,
        batch,
        worker ?? null,
        [...room.keys()],
        worker === undefined ? [...room.keys()].map(() => 0) : [...room.values()],
        interval(from.reachMs),
      ),
    );
    const [row] = rows;
    if (!row) throw new Error('the fan-out statement returned no row');
    if (row.taken < batch) floor.passed(row.next_from, from.full);
    else if (from.full) floor.reset();
    // What it reached back for may be more than one pass carries, and the nudge for it was one.
    else floor.reach(from.reachMs);
    this.more = row.taken >= batch;
    this.nextMs = row.next_ms ?? undefined;
    return {
      taken: row.taken,
      leftForTakers: row.left,
      // What this process has no room for, somebody else may have.
      leftForOthers: row.left + row.elsewhere,
      handedOver: leased(row.handed, worker),
    };
  }

  async publish(send: (events: readonly OutgoingRow[]) => Promise<SendResult>): Promise<ForwardCounts> {
    const { floor } = this.parts;
    const { full } = this.from;
    const { outlook, more, ...counts } = await brokerBatch({ ...this.parts, from: this.from }, send);
    this.nextMs = outlook.next_ms ?? undefined;
    this.more = more;
    if (!more) floor.passed(outlook.next_from, full);
    else if (full) floor.reset();
    else floor.reach(this.from.reachMs);
    return counts;
  }
}

function leased(handed: readonly (readonly [string, number])[] | null, worker: number | undefined): Delivery[] {
  if (worker === undefined) return [];
  return (handed ?? []).map(([eventId, durable]) => ({ eventId, durable, lease: worker }));
}
