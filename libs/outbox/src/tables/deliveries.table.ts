import { inSchema, statement } from './wire/statement.js';

export interface TakenRow {
  readonly event_id: string;
  readonly durable: number;
}

export interface OutlookRow {
  /** A row that must run alone is due. */
  readonly alone_waits: boolean;
  /** Milliseconds until the next row is due; null when none waits. */
  readonly next_ms: number | null;
  /** Half a second ago by the database's clock; see `Floor`. */
  readonly next_from: string;
}

/** From this many interruptions on a delivery runs alone in its process; the partial indexes of `deliveries` say 3, too. */
export const aloneFrom = 3;
/** With this many interruptions a delivery is not run again but becomes a dead letter. */
export const deadFrom = 6;

/** `deliveries`: every delivery that waits, and every one that is leased to a worker. A finished one has no row. */
export class DeliveriesTable {
  readonly take;
  readonly outlook;
  readonly takeAlone;
  readonly giveBack;
  readonly postpone;
  readonly snooze;
  readonly interrupt;
  readonly leave;
  readonly freeUnknown;
  readonly adopt;
  readonly adoptInterrupted;

  constructor(schema: string) {
    this.take = statement<TakenRow>('take', inSchema(schema, takeSql));
    this.outlook = statement<OutlookRow>('outlook', inSchema(schema, outlookSql));
    this.takeAlone = statement<TakenRow>('take_alone', inSchema(schema, takeAloneSql));
    this.giveBack = statement('give_back', inSchema(schema, giveBackSql));
    this.postpone = statement('postpone', inSchema(schema, postponeSql));
    this.snooze = statement('snooze_after', inSchema(schema, snoozeSql));
    this.interrupt = statement('interrupt', inSchema(schema, interruptSql));
    this.leave = statement('leave', inSchema(schema, leaveSql));
    this.adopt = statement('adopt', inSchema(schema, adoptSql));
    this.adoptInterrupted = statement<{ id: string }>('adopt_interrupted', inSchema(schema, adoptInterruptedSql));
    this.freeUnknown = statement('free_unknown', inSchema(schema, freeUnknownSql));
  }
}

/** One statement for all durables of the process. Parameters: durables, their room, this worker's number, floor. */
const takeSql = `
WITH t AS MATERIALIZED (SELECT d.tid FROM unnest($1::smallint[], $2::int[]) w(durable, free)
  CROSS JOIN LATERAL (SELECT ctid AS tid FROM outbox.deliveries WHERE durable = w.durable AND lease IS NULL AND interruptions < ${aloneFrom}
    AND due_at > $4::timestamptz AND due_at <= statement_timestamp() ORDER BY due_at LIMIT w.free FOR UPDATE SKIP LOCKED) d)
UPDATE outbox.deliveries SET lease = $3::int WHERE ctid = ANY (ARRAY(SELECT tid FROM t)) RETURNING event_id, durable`;

/** What a taker wants to know beside what it took. Parameters: durables. */
const outlookSql = `
SELECT EXISTS (SELECT 1 FROM unnest($1::smallint[]) w(durable) CROSS JOIN LATERAL (SELECT 1 FROM outbox.deliveries
    WHERE durable = w.durable AND lease IS NULL AND interruptions >= ${aloneFrom} AND due_at <= statement_timestamp() LIMIT 1) d) AS alone_waits,
  (SELECT ceil(extract(epoch FROM min(d.due_at) - statement_timestamp()) * 1000) FROM unnest($1::smallint[]) w(durable) CROSS JOIN LATERAL
    (SELECT due_at FROM outbox.deliveries WHERE durable = w.durable AND lease IS NULL AND interruptions < ${aloneFrom}
     AND due_at > statement_timestamp() ORDER BY due_at LIMIT 1) d)::bigint AS next_ms,
  (statement_timestamp() - interval '0.5 seconds')::text AS next_from`;

/** One row that must run alone. Parameters: durables, this worker's number. */
const takeAloneSql = `
WITH t AS MATERIALIZED (SELECT d.tid FROM unnest($1::smallint[]) w(durable)
  CROSS JOIN LATERAL (SELECT ctid AS tid FROM outbox.deliveries WHERE durable = w.durable AND lease IS NULL AND interruptions >= ${aloneFrom}
    AND due_at <= statement_timestamp() ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED) d LIMIT 1)
UPDATE outbox.deliveries SET lease = $2::int WHERE ctid = ANY (ARRAY(SELECT tid FROM t)) RETURNING event_id, durable`;

/** Not started, or stopped by us: free at once, nothing charged. Parameters: lease, event ids, durables. */
const giveBackSql = `
UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp()
WHERE lease = $1::int AND (event_id, durable) IN (SELECT * FROM unnest($2::uuid[], $3::smallint[]))`;

/** Not now, nothing charged. Parameters: event id, durable, lease, delay. */
const postponeSql = `
UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp() + $4::interval
WHERE event_id = $1::uuid AND durable = $2::smallint AND lease = $3::int`;

/** The same at the handler's own wish: counted, because there is a limit. Parameters: event id, durable, lease, delay. */
const snoozeSql = `
UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp() + $4::interval, snoozes = snoozes + 1
WHERE event_id = $1::uuid AND durable = $2::smallint AND lease = $3::int`;

/** The handler's connection ended under it while the database lives. Parameters: event id, durable, lease. */
const interruptSql = `
UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp(), interruptions = interruptions + 1
WHERE event_id = $1::uuid AND durable = $2::smallint AND lease = $3::int`;

/**
 * What a worker that lost its lock, but lives, had leased under its old number: free, nothing charged. Rows of handlers
 * that still run are locked by them and skipped; they end under the old number or are freed by the sweep. Parameters: leases.
 */
const leaveSql = `
UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp()
WHERE ctid = ANY (ARRAY(SELECT ctid FROM outbox.deliveries WHERE lease = ANY ($1::int[]) FOR UPDATE SKIP LOCKED))`;

/**
 * What is leased to a living worker that does not know of it, because the answer of a take or a fan-out was lost. One
 * that is on its way while this runs is freed as well: its claim then finds no row. Parameters: lease, ids, durables held.
 */
const freeUnknownSql = `
UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp()
WHERE ctid = ANY (ARRAY(SELECT ctid FROM outbox.deliveries WHERE lease = $1::int
  AND (event_id, durable) NOT IN (SELECT * FROM unnest($2::uuid[], $3::smallint[])) FOR UPDATE SKIP LOCKED))`;

/**
 * A consumer that was made again gives once more what still waits here, and Postgres refuses to touch a row twice
 * (21000). In one order, so that two of these cannot deadlock.
 */
const distinctSql = `(SELECT DISTINCT id, durable FROM unnest($1::uuid[], $2::smallint[]) g(id, durable) ORDER BY 1, 2) u`;

/** Of a message, what a row of the fan-out would have been: its event is there, the durable is meant, and nobody has a verdict. */
const meantSql = `EXISTS (SELECT 1 FROM outbox.events e JOIN outbox.durables n ON n.id = u.durable AND n.state = 'active'
    JOIN outbox.durable_types y ON y.durable = n.id AND y.ended_at IS NULL AND e.type LIKE y.matcher AND e.created_at >= y.since WHERE e.bucket = outbox.bucket(u.id) AND e.id = u.id)
  AND NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(u.id) AND h.event_id = u.id AND h.durable IN (0, u.durable))`;

/**
 * Messages that this process holds become rows that are leased to it, so that what came of them is recorded as for any
 * row; sent in front of that record in one message, so that nobody sees the row in between. A row that is there and was
 * never tried is the reconciler's, made while the message was under way; one that is leased is under way elsewhere, and
 * would be waited for. Parameters: event ids, durables, lease.
 */
const adoptSql = `
INSERT INTO outbox.deliveries AS d (event_id, durable, lease)
SELECT u.id, u.durable, $3::int FROM ${distinctSql} WHERE ${meantSql}
  AND NOT EXISTS (SELECT 1 FROM outbox.deliveries x WHERE x.event_id = u.id AND x.durable = u.durable AND x.lease IS NOT NULL)
ON CONFLICT (event_id, durable) DO UPDATE SET lease = excluded.lease WHERE d.lease IS NULL AND d.attempt = 0 AND d.interruptions = 0`;

/**
 * Messages that somebody had before and did not answer for: one interruption, and from here on the database's. One that
 * is still handled (its process was paused) is locked by its mark: whoever takes the row finds it busy, then settled.
 * Parameters: event ids, durables.
 */
const adoptInterruptedSql = `
INSERT INTO outbox.deliveries (event_id, durable, interruptions)
SELECT u.id, u.durable, 1 FROM ${distinctSql} WHERE ${meantSql}
  AND NOT EXISTS (SELECT 1 FROM outbox.deliveries x WHERE x.event_id = u.id AND x.durable = u.durable)
ON CONFLICT DO NOTHING RETURNING event_id AS id`;
