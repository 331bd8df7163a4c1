import type { LockKeys } from './schema/schema-name.js';
import { inSchema, statement } from './wire/statement.js';

export interface FanOutRow {
  readonly taken: number;
  /** Waiting rows of this process's own durables that were beyond its room. */
  readonly left: number;
  /** Waiting rows of durables that this process does not handle, or has no room for at all. */
  readonly elsewhere: number;
  /** Half a second ago by the database's clock; see `Floor`. */
  readonly next_from: string;
  /** Milliseconds until the next row of the queue is due; null when none waits. */
  readonly next_ms: number | null;
  /** Leased to this worker: [event id, durable]. */
  readonly handed: readonly (readonly [string, number])[] | null;
}

/** `queue`, what waits for the relay, and `scheduled`, what is due later than tomorrow. */
export class QueueTable {
  readonly fanOutLock;
  readonly fanOut;
  readonly moveScheduled;

  constructor(schema: string, keys: LockKeys) {
    this.fanOutLock = statement('fan_out_lock', `SELECT pg_advisory_xact_lock_shared(${keys.registration}, 0)`);
    this.fanOut = statement<FanOutRow>('fan_out', inSchema(schema, fanOutSql));
    this.moveScheduled = statement<{ moved: number }>('move_scheduled', inSchema(schema, moveScheduledSql));
  }
}

/**
 * Parameters: floor, batch, this worker's number (null: lease nothing), its durables, their room, how far below the floor. Sent right behind
 * `fanOutLock` in one message: the lock must be a statement of its own, so that this one's snapshot is younger than any
 * registration; inside one statement an event was lost for good.
 * `statement_timestamp()`, because a volatile clock is no index condition. EXISTS, because two patterns of one durable
 * may match. DELETE by ctid is a TID scan, given that sequential scans are off on this connection.
 */
const fanOutSql = `
WITH q AS MATERIALIZED (SELECT ctid AS tid, event_id, due_at FROM outbox.queue WHERE due_at > $1::timestamptz - $6::interval AND due_at <= statement_timestamp()
      ORDER BY due_at, seq LIMIT $2::int FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM outbox.queue WHERE ctid = ANY (ARRAY(SELECT tid FROM q))),
x AS MATERIALIZED (SELECT q.event_id, t.id AS durable, row_number() OVER (PARTITION BY t.id ORDER BY q.due_at) AS n
      FROM q JOIN outbox.events e ON e.bucket = outbox.bucket(q.event_id) AND e.id = q.event_id
      JOIN outbox.durables t ON t.state = 'active' AND EXISTS (SELECT 1 FROM outbox.durable_types y
        WHERE y.durable = t.id AND e.type LIKE y.matcher AND e.created_at >= y.since AND y.ended_at IS NULL)),
d AS (INSERT INTO outbox.deliveries (event_id, durable, lease)
      SELECT x.event_id, x.durable, CASE WHEN x.n <= m.free THEN $3::int END
      FROM x LEFT JOIN unnest($4::smallint[], $5::int[]) m(durable, free) ON m.durable = x.durable
      ON CONFLICT DO NOTHING RETURNING event_id, durable, lease)
SELECT (SELECT count(*)::int FROM q) AS taken,
       (SELECT count(*)::int FROM d WHERE lease IS NULL AND durable = ANY ($4::smallint[])) AS "left",
       (SELECT count(*)::int FROM d WHERE lease IS NULL AND durable <> ALL ($4::smallint[])) AS elsewhere,
       (statement_timestamp() - interval '0.5 seconds')::text AS next_from,
       (SELECT ceil(extract(epoch FROM min(due_at) - statement_timestamp()) * 1000)::int FROM outbox.queue WHERE due_at > statement_timestamp()) AS next_ms,
       (SELECT json_agg(json_build_array(event_id, durable) ORDER BY event_id) FROM d WHERE lease IS NOT NULL) AS handed`;

/** Rows of `scheduled` that one statement moves. */
export const scheduledChunk = 500;

/** Due rows of `scheduled` become events in the queue, under the ids they were given; a chunk at a time. */
const moveScheduledSql = `
WITH s AS (DELETE FROM outbox.scheduled WHERE id = ANY (ARRAY(SELECT id FROM outbox.scheduled WHERE due_at <= statement_timestamp()
      ORDER BY due_at LIMIT ${scheduledChunk} FOR UPDATE SKIP LOCKED)) RETURNING *),
e AS (INSERT INTO outbox.events (bucket, id, tenant_id, type, subject, payload, headers, unique_key, created_at)
      SELECT outbox.bucket(id), id, tenant_id, type, subject, payload, headers, unique_key, created_at FROM s),
q AS (INSERT INTO outbox.queue (event_id, due_at) SELECT id, due_at FROM s)
SELECT count(*)::int AS moved FROM s`;
