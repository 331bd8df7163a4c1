import { isUuid } from '../core/uuid.js';
import type { Nudge } from '../core/wake-signal.js';
import type { Database } from '../tables/database.js';
import type { DeadLetterRow } from '../tables/dead-letters.table.js';
import { relayName } from '../tables/queue.table.js';
import type { BatchResult } from '../tables/wire/batch.js';
import type { Bound } from '../tables/wire/statement.js';

/** A delivery that was given up, with the whole event. */
export interface DeadLetter {
  readonly eventId: string;
  readonly durable: string;
  readonly type: string;
  readonly tenantId: string | null;
  readonly subject: string | null;
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
  /** The last error, with its stack; at most 8 KiB. */
  readonly error: string;
  readonly attempts: number;
  /** The failed attempts before the last, oldest first; at most 19. */
  readonly history: readonly { readonly n: number; readonly error: string; readonly at: string }[];
  readonly deadAt: Date;
}

export interface DeadLetterQuery {
  readonly durable?: string;
  readonly tenantId?: string;
  /** Default 100, at most 1,000. */
  readonly limit?: number;
  /** The last letter of the page before. */
  readonly after?: { readonly eventId: string; readonly durable: string };
}

/** The operator's side of giving up. Nothing comes back from here by itself. */
export class DeadLetters {
  constructor(
    private readonly database: Database,
    private readonly taker: Nudge,
  ) {}

  /** Open letters, oldest first. */
  async list(query: DeadLetterQuery = {}): Promise<DeadLetter[]> {
    const { durable = null, tenantId = null, after } = query;
    const limit = Math.min(Math.max(1, Math.trunc(query.limit ?? 100)), 1_000);
    const { rows } = await this.send(
      this.database.deadLetters.list(durable, tenantId, after?.eventId ?? null, after?.durable ?? null, limit),
    );
    return rows.map(letter);
  }

  /**
   * Handles the event again by `durable` alone, from attempt 1. With `#relay`, which no durable can be named, the event
   * goes to the broker again, for all of its durables. Resolves to false when there is no open letter, when another
   * operator was first, when the event itself has been forgotten, or when the durable is retired.
   */
  async retry(eventId: string, durable: string): Promise<boolean> {
    if (!isUuid(eventId)) return false;
    const { retry, forwardAgain } = this.database.deadLetters;
    const { rows } = await this.send(durable === relayName ? forwardAgain(eventId) : retry(eventId, durable));
    if (rows.length > 0) this.taker.nudge();
    return rows.length > 0;
  }

  /** Closes a letter without handling the event. Resolves to false when there is no open one. */
  async resolve(eventId: string, durable: string, resolution = 'resolved'): Promise<boolean> {
    if (!isUuid(eventId)) return false;
    const { rows } = await this.send(this.database.deadLetters.resolve(eventId, durable, resolution));
    return rows.length > 0;
  }

  private async send<Row>(bound: Bound<Row>): Promise<BatchResult<Row>> {
    const [result] = await this.database.onPool(bound);
    return result;
  }
}

function letter(row: DeadLetterRow): DeadLetter {
  return {
    eventId: row.event_id,
    durable: row.durable,
    type: row.type,
    tenantId: row.tenant_id,
    subject: row.subject,
    payload: row.payload,
    headers: row.headers ?? {},
    error: row.error ?? '',
    attempts: row.attempts,
    history: row.history ?? [],
    deadAt: new Date(row.dead_ms),
  };
}
