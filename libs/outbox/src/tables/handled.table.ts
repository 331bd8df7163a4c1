import { inSchema, type Statement, statement } from './wire/statement.js';

export interface ClaimRow {
  /** null: the row is not leased to us any more. */
  readonly attempt: number | null;
  readonly interruptions: number | null;
  readonly snoozes: number | null;
  /** false with an attempt: handled already, or the event is gone. */
  readonly claimed: boolean;
  readonly tenant_id: string | null;
  readonly type: string | null;
  readonly subject: string | null;
  readonly payload: unknown;
  readonly headers: Record<string, string> | null;
  readonly created_ms: number | null;
  readonly pid: number;
}

/**
 * `handled`: the marks. A mark is inserted by the claim in the handler's own transaction and its primary key decides
 * every race; success and giving up are verdicts under the same key. All statements exist once per bucket, with the
 * bucket as a literal: a bucket *parameter* would lock every partition and its indexes.
 */
export class HandledTable {
  /** Parameters: event id, durable, lease. */
  readonly claim: PerBucket<ClaimRow>;
  /** The same for a delivery that has no row. An attempt of null: it has one. */
  readonly claimMessage: PerBucket<ClaimRow>;
  readonly fail: PerBucket<{ id: string }>;
  readonly snooze: PerBucket<{ id: string }>;
  readonly dead: PerBucket<{ id: string }>;
  readonly cancel: PerBucket<{ id: string }>;
  readonly failAfter: PerBucket<{ id: string }>;
  readonly deadAfter: PerBucket<{ id: string }>;
  readonly cancelAfter: PerBucket<{ id: string }>;

  constructor(schema: string) {
    const perBucket = <Row>(name: string, sql: string): PerBucket<Row> =>
      Array.from({ length: 10 }, (_, b) =>
        statement<Row>(`${name}_${b}`, inSchema(schema, sql.replaceAll('{b}', `${b}`))),
      );
    this.claim = perBucket('claim', 'SELECT * FROM outbox.claim_{b}($1::uuid, $2::smallint, $3::int)');
    this.claimMessage = perBucket(
      'claim_message',
      'SELECT * FROM outbox.claim_message_{b}($1::uuid, $2::smallint, $3::int)',
    );
    this.fail = perBucket('fail', failSql);
    this.snooze = perBucket('snooze', snoozeSql);
    this.dead = perBucket('dead', deadSql);
    this.cancel = perBucket('cancel_running', cancelSql);
    this.failAfter = perBucket('fail_after', failAfterSql);
    this.deadAfter = perBucket('dead_after', deadAfterSql);
    this.cancelAfter = perBucket('cancel_running_after', cancelAfterSql);
  }
}

/** Indexed by `bucketOf(eventId)`. */
export type PerBucket<Row> = readonly Statement<Row>[];

/**
 * For a message there may be a row by now: the reconciler's, or of a redelivery that was counted while this one was
 * under way. What came of the attempt goes into it; whoever has leased it finds it is not his any more.
 */
const intoRow = `ON CONFLICT (event_id, durable) DO UPDATE SET due_at = excluded.due_at, attempt = excluded.attempt, snoozes = excluded.snoozes,
  interruptions = greatest(d.interruptions, excluded.interruptions), lease = NULL, last_error = excluded.last_error`;

/** At most this many failed attempts of one delivery are kept in `attempts`. */
const attemptsKept = 20;

/**
 * Inside the claim's transaction, behind ROLLBACK TO: the mark becomes an attempt and a deliveries row with its next
 * due time. Parameters: event id, durable, attempt, error, worker, delay, interruptions, snoozes.
 */
const failSql = `
WITH m AS (DELETE FROM outbox.handled_{b} WHERE bucket = {b} AND event_id = $1::uuid AND durable = $2::smallint RETURNING 1),
a AS (INSERT INTO outbox.attempts_{b} (bucket, event_id, durable, n, error, worker, next_at)
      SELECT {b}, $1::uuid, $2::smallint, $3::smallint, $4::text, $5::int, clock_timestamp() + $6::interval FROM m WHERE $3::smallint <= ${attemptsKept})
INSERT INTO outbox.deliveries AS d (event_id, durable, due_at, attempt, interruptions, snoozes, last_error)
SELECT $1::uuid, $2::smallint, clock_timestamp() + $6::interval, $3::smallint, $7::smallint, $8::smallint, $4::text FROM m ${intoRow} RETURNING event_id AS id`;

/** The same for "not now": no attempt is charged. Parameters: event id, durable, attempt, reason, delay, interruptions, snoozes. */
const snoozeSql = `
WITH m AS (DELETE FROM outbox.handled_{b} WHERE bucket = {b} AND event_id = $1::uuid AND durable = $2::smallint RETURNING 1)
INSERT INTO outbox.deliveries AS d (event_id, durable, due_at, attempt, interruptions, snoozes, last_error)
SELECT $1::uuid, $2::smallint, clock_timestamp() + $5::interval, $3::smallint, $6::smallint, $7::smallint, $4::text FROM m ${intoRow} RETURNING event_id AS id`;

const deadLetterFrom = (source: string): string => `
INSERT INTO outbox.dead_letters (event_id, durable, tenant_id, type, subject, payload, headers, created_at, error, attempts, history)
SELECT e.id, n.name, e.tenant_id, e.type, e.subject, e.payload, e.headers, e.created_at, $4::text, $3::smallint,
       (SELECT jsonb_agg(jsonb_build_object('n', h.n, 'error', h.error, 'at', h.failed_at) ORDER BY h.n)
        FROM (SELECT * FROM outbox.attempts_{b} WHERE event_id = $1::uuid AND durable = $2::smallint ORDER BY n DESC LIMIT ${attemptsKept - 1}) h)
FROM ${source}, outbox.events_{b} e, outbox.durables n WHERE e.bucket = {b} AND e.id = $1::uuid AND n.id = $2::smallint
ON CONFLICT (event_id, durable) DO UPDATE SET dead_at = clock_timestamp(), error = excluded.error, attempts = excluded.attempts,
  history = excluded.history, resolved_at = NULL, resolution = NULL
RETURNING event_id AS id`;

/** Giving up inside the claim's transaction, behind ROLLBACK TO. Parameters: event id, durable, attempt, error, worker. */
const deadSql = `
WITH m AS (UPDATE outbox.handled_{b} SET verdict = 'x' WHERE bucket = {b} AND event_id = $1::uuid AND durable = $2::smallint RETURNING 1),
a AS (INSERT INTO outbox.attempts_{b} (bucket, event_id, durable, n, error, worker)
      SELECT {b}, $1::uuid, $2::smallint, $3::smallint, $4::text, $5::int FROM m WHERE $3::smallint <= ${attemptsKept})${deadLetterFrom('m')}`;

/** Cancelled while it ran, inside the claim's transaction, behind ROLLBACK TO. Parameters: event id, durable, attempt. */
const cancelSql = `
UPDATE outbox.handled_{b} SET verdict = 'c', attempts = $3::smallint - 1 WHERE bucket = {b} AND event_id = $1::uuid AND durable = $2::smallint RETURNING event_id AS id`;

/** Still ours, still the same attempt, and nobody's verdict: what makes recording after the transaction safe to repeat. */
const stillOurs = (
  lease = '$5',
): string => `event_id = $1::uuid AND durable = $2::smallint AND lease = ${lease}::int AND attempt = $3::smallint - 1
  AND NOT EXISTS (SELECT 1 FROM outbox.handled_{b} h WHERE h.bucket = {b} AND h.event_id = $1::uuid AND h.durable = $2::smallint)`;

/**
 * When the transaction is over (COMMIT refused, savepoint gone, connection ended by a timeout): the row came back with
 * the rollback, so it is updated where it stands. Parameters: event id, durable, attempt, error, lease, delay.
 */
const failAfterSql = `
WITH d AS (UPDATE outbox.deliveries SET lease = NULL, attempt = $3::smallint, due_at = clock_timestamp() + $6::interval, last_error = $4::text
      WHERE ${stillOurs()} RETURNING event_id, due_at),
a AS (INSERT INTO outbox.attempts_{b} (bucket, event_id, durable, n, error, worker, next_at)
      SELECT {b}, $1::uuid, $2::smallint, $3::smallint, $4::text, $5::int, due_at FROM d WHERE $3::smallint <= ${attemptsKept})
SELECT event_id AS id FROM d`;

/** Giving up when the transaction is over. Parameters: event id, durable, attempt, error, lease. */
const deadAfterSql = `
WITH d AS (DELETE FROM outbox.deliveries WHERE ${stillOurs()} RETURNING event_id),
m AS (INSERT INTO outbox.handled_{b} (bucket, event_id, durable, verdict, attempts, worker)
      SELECT {b}, $1::uuid, $2::smallint, 'x', $3::smallint, $5::int FROM d ON CONFLICT DO NOTHING RETURNING 1),
a AS (INSERT INTO outbox.attempts_{b} (bucket, event_id, durable, n, error, worker)
      SELECT {b}, $1::uuid, $2::smallint, $3::smallint, $4::text, $5::int FROM m WHERE $3::smallint <= ${attemptsKept})${deadLetterFrom('m')}`;

/** Cancelled while it ran, when the transaction is over. Parameters: event id, durable, attempt, lease. */
const cancelAfterSql = `
WITH d AS (DELETE FROM outbox.deliveries WHERE ${stillOurs('$4')} RETURNING event_id)
INSERT INTO outbox.handled_{b} (bucket, event_id, durable, verdict, attempts, worker)
SELECT {b}, $1::uuid, $2::smallint, 'c', $3::smallint - 1, $4::int FROM d ON CONFLICT DO NOTHING RETURNING event_id AS id`;
