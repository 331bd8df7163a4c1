import { firstUuid, isUuid } from '../core/uuid.js';
import type { Database } from '../tables/database.js';
import type { AttemptRow, EventRow, RelayedRow } from '../tables/inspect-event.table.js';
import { type ListedRow, listSources } from '../tables/inspect-list.table.js';
import type { DeliveryFilter } from './delivery-filter.js';
import { type DeliveryInfo, type DeliveryState, dateOf, type EventInfo } from './delivery-info.js';
import { boundOf, everything, limitOf, vain, wantedOf } from './filter.js';
import { inOrder, PageReader } from './page.js';
import { cursorOf, placeOf, top } from './place.js';

export type { DeliveryFilter } from './delivery-filter.js';

export interface PageOptions {
  /** Default 100, at most 1,000. */
  readonly limit?: number;
  /** `next` of the page before. */
  readonly cursor?: string;
}

export interface DeliveryPage {
  /**
   * Newest event first: in the order of ids, which carry the due time. May be fewer than `limit` while there is a `next`:
   * a page that would have to read millions of rows to be full ends after some seconds.
   */
  readonly deliveries: readonly DeliveryInfo[];
  /** Where the next page begins; null when there is none. */
  readonly next: string | null;
}

export interface AttemptInfo {
  readonly durable: string;
  readonly n: number;
  readonly error: string;
  readonly worker: string | null;
  readonly failedAt: Date;
  readonly nextAt: Date | null;
}

export interface EventDetails {
  readonly event: EventInfo;
  /** Where it is on its way to the deliveries. */
  readonly relay: {
    readonly state: 'scheduled' | 'queued' | 'forwarded' | 'refused';
    readonly dueAt: Date | null;
    readonly tries: number;
    readonly error: string | null;
  };
  readonly deliveries: readonly DeliveryInfo[];
  /** Failed attempts, oldest first; at most 20 of each delivery. */
  readonly attempts: readonly AttemptInfo[];
}

/** Reads deliveries and events; takes no lock, and hides no work from anybody. */
export class DeliveryReader {
  constructor(private readonly database: Database) {}

  async list(filter: DeliveryFilter = {}, page: PageOptions = {}): Promise<DeliveryPage> {
    const wanted = wantedOf(filter);
    const limit = limitOf(page.limit);
    const from = page.cursor === undefined ? top : placeOf(page.cursor);
    if (vain(wanted)) return { deliveries: [], next: null };
    const { rows, next } = await new PageReader(this.database, wanted, limit).read(from);
    return { deliveries: rows.map(deliveryOf), next: next && cursorOf(next) };
  }

  async get(id: string): Promise<EventDetails | null> {
    if (!isUuid(id)) return null;
    const { inspectEvent: one, inspectList } = this.database;
    const given = boundOf(top, firstUuid, everything, [id]);
    const [events, relayed, attempts, ...lists] = await this.database.snapshot(
      one.event(id),
      one.relayed(id),
      one.attempts(id),
      ...listSources.map((source) => inspectList.of[source](...given)),
    );
    const [event] = events.rows;
    if (!event) return null;
    const rows = lists.flatMap(({ rows: [row] }) => row?.found ?? []);
    return {
      event: eventOf(event),
      relay: relayOf(relayed.rows[0]),
      deliveries: inOrder(rows).map(deliveryOf),
      attempts: attempts.rows.map(attemptOf),
    };
  }
}

function deliveryOf(row: ListedRow): DeliveryInfo {
  return {
    eventId: row.event_id,
    durable: row.durable,
    state: row.state as DeliveryState,
    type: row.type,
    tenantId: row.tenant_id,
    subject: row.subject,
    attempts: row.attempts,
    dueAt: dateOf(row.due_ms),
    since: dateOf(row.since_ms),
    worker: row.worker,
    error: row.error,
    pause: row.pause,
    publishedAt: new Date(row.published_ms),
  };
}

function eventOf(row: EventRow): EventInfo {
  return {
    id: row.id,
    type: row.type,
    tenantId: row.tenant_id,
    subject: row.subject,
    payload: row.payload,
    headers: row.headers ?? {},
    publishedAt: new Date(row.published_ms),
  };
}

function relayOf(row: RelayedRow | undefined): EventDetails['relay'] {
  if (!row) return { state: 'forwarded', dueAt: null, tries: 0, error: null };
  return { state: row.state, dueAt: dateOf(row.due_ms), tries: row.tries, error: row.error };
}

function attemptOf(row: AttemptRow): AttemptInfo {
  return {
    durable: row.durable,
    n: row.n,
    error: row.error ?? '',
    worker: row.worker,
    failedAt: new Date(row.failed_ms),
    nextAt: dateOf(row.next_ms),
  };
}
