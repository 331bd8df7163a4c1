import type { LockKeys } from './schema/schema-name.js';
import { inSchema, statement } from './wire/statement.js';

/** Stands for a durable in the dead letters of events that could not be forwarded; no durable can be named so. */
export const relayName = '#relay';

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

export interface QueueOutlookRow {
  readonly next_from: string;
  readonly next_ms: number | null;
}

/** A locked row of the queue with its event, for a broker. */
export interface LockedRow {
  /** How many rows were locked; those beyond the limit of bytes are not among the answer. */
  readonly locked: number;
  /** Where the row stands. */
  readonly tid: string;
  readonly id: string;
  /** How often it was refused. */
  readonly attempts: number;
  /** null: the event is gone, and the row with it. */
  readonly type: string | null;
  readonly tenant_id: string | null;
  readonly subject: string | null;
  readonly payload: string;
  readonly headers: Record<string, string> | null;
  readonly created_ms: number;
}

/** `queue`, what waits for the relay, and `scheduled`, what is due later than tomorrow. */
export class QueueTable {
  readonly fanOutLock;
  readonly fanOut;
  /** No parameters. */
  readonly outlook;
  /** Parameters: floor, batch, how far below the floor. */
  readonly lock;
  /** Parameters: where the rows stand, event ids. */
  readonly confirm;
  /** Parameters: where the rows stand, event ids, reasons, delays. */
  readonly refuse;
  /** Parameters: where the row stands, event id, reason. */
  readonly giveUp;
  readonly moveScheduled;

  constructor(schema: string, keys: LockKeys) {
    this.fanOutLock = statement('fan_out_lock', `SELECT pg_advisory_xact_lock_shared(${keys.registration}, 0)`);
    this.fanOut = statement<FanOutRow>('fan_out', inSchema(schema, fanOutSql));
    this.outlook = statement<QueueOutlookRow>('queue_outlook', inSchema(schema, outlookSql));
    this.lock = statement<LockedRow>('queue_lock', inSchema(schema, lockSql));
    this.confirm = statement('queue_confirm', inSchema(schema, confirmSql));
    this.refuse = statement('queue_refuse', inSchema(schema, refuseSql));
    this.giveUp = statement<{ id: string }>('queue_give_up', inSchema(schema, giveUpSql));
    this.moveScheduled = statement<{ moved: number }>('move_scheduled', inSchema(schema, moveScheduledSql));
  }
}

/**
 * Parameters: floor, batch, this worker's number (null: lease nothing), its durables, their room, how far below the floor. Sent right behind
 * `fanOutLock` in one message: the lock must be a statement of its own, so that this one's snapshot is younger than any
 * registration; inside one statement an event was lost for good.
 * `statement_timestamp()`, because a volatile clock is no index condition. EXISTS, because two patterns of one durable
 * may match. What was cancelled while another relay had it goes to nobody: a durable that has registered since has no mark
 * of its own. DELETE by ctid is a TID scan, given that sequential scans are off on this connection.
 */
const fanOutSql = `
WITH q AS MATERIALIZED (SELECT ctid AS tid, event_id, due_at FROM outbox.queue WHERE due_at > $1::timestamptz - $6::interval AND due_at <= statement_timestamp()
      ORDER BY due_at, seq LIMIT $2::int FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM outbox.queue WHERE ctid = ANY (ARRAY(SELECT tid FROM q))),
x AS MATERIALIZED (SELECT q.event_id, t.id AS durable, row_number() OVER (PARTITION BY t.id ORDER BY q.due_at) AS n
      FROM q JOIN outbox.events e ON e.bucket = outbox.bucket(q.event_id) AND e.id = q.event_id
      JOIN outbox.durables t ON t.state = 'active' AND EXISTS (SELECT 1 FROM outbox.durable_types y
        WHERE y.durable = t.id AND e.type LIKE y.matcher AND e.created_at >= y.since AND y.ended_at IS NULL)
      WHERE NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(q.event_id) AND h.event_id = q.event_id AND h.durable = 0)),
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

/** What the fan-out says by the way. Sent before the rows are locked, so that what is committed in between is read next time. */
const outlookSql = `
SELECT (statement_timestamp() - interval '0.5 seconds')::text AS next_from,
  (SELECT ceil(extract(epoch FROM min(due_at) - statement_timestamp()) * 1000)::int FROM outbox.queue WHERE due_at > statement_timestamp()) AS next_ms`;

/** A batch of a broker's takes no further event when it holds so many bytes of payload, as they are stored. */
const mostBytes = 4 * 1024 * 1024;

/**
 * Due rows, locked until the transaction ends, so that no other relay forwards them meanwhile. Payload as text, because
 * nobody here reads it; and as text only what is sent, because 500 large ones took seconds, and the next pass the same.
 */
const lockSql = `
WITH q AS MATERIALIZED (SELECT ctid AS tid, due_at, seq, event_id, attempts FROM outbox.queue WHERE due_at > $1::timestamptz - $3::interval AND due_at <= statement_timestamp()
      ORDER BY due_at, seq LIMIT $2::int FOR UPDATE SKIP LOCKED),
e AS MATERIALIZED (SELECT q.*, e.type, e.tenant_id, e.subject, e.payload, e.headers, floor(extract(epoch FROM e.created_at) * 1000)::bigint AS created_ms,
      coalesce(sum(pg_column_size(e.payload)) OVER (ORDER BY q.due_at, q.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
      FROM q LEFT JOIN outbox.events e ON e.bucket = outbox.bucket(q.event_id) AND e.id = q.event_id)
SELECT (SELECT count(*)::int FROM q) AS locked, tid::text, event_id AS id, attempts, type, tenant_id, subject, coalesce(payload::text, 'null') AS payload, headers, coalesce(created_ms, 0) AS created_ms
FROM e WHERE before < ${mostBytes} ORDER BY due_at, seq`;

/**
 * By the place, which is quick, and by the id, which is sure: when the locking session was lost meanwhile (a paused
 * process), this runs on another one, and the places may be other rows' by now.
 */
const confirmSql = `
DELETE FROM outbox.queue q USING unnest($1::tid[], $2::uuid[]) r(tid, id) WHERE q.ctid = r.tid AND q.event_id = r.id`;

const refuseSql = `
UPDATE outbox.queue q SET attempts = q.attempts + 1, last_error = r.reason, due_at = clock_timestamp() + r.delay
FROM unnest($1::tid[], $2::uuid[], $3::text[], $4::interval[]) r(tid, id, reason, delay) WHERE q.ctid = r.tid AND q.event_id = r.id`;

/** No durable's, so the letter bears the relay's name. */
const giveUpSql = `
WITH q AS (DELETE FROM outbox.queue WHERE ctid = $1::tid AND event_id = $2::uuid RETURNING event_id, attempts)
INSERT INTO outbox.dead_letters (event_id, durable, tenant_id, type, subject, payload, headers, created_at, error, attempts)
SELECT e.id, '${relayName}', e.tenant_id, e.type, e.subject, e.payload, e.headers, e.created_at, $3::text, q.attempts + 1
FROM q JOIN outbox.events e ON e.bucket = outbox.bucket(q.event_id) AND e.id = q.event_id
ON CONFLICT (event_id, durable) DO UPDATE SET dead_at = clock_timestamp(), error = excluded.error, attempts = excluded.attempts,
  resolved_at = NULL, resolution = NULL
RETURNING event_id AS id`;

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
