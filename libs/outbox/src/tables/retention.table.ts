import { inSchema, type Statement, statement } from './wire/statement.js';

export interface WindowRow {
  /** The moment before which days are forgotten, at the start of a UTC day. */
  readonly before: string;
  /** The smallest id of that moment. */
  readonly first: string;
}

export interface BucketRow {
  /** The oldest event of before the window; null when there is none, and all that follows is 0 then. */
  readonly oldest: string | null;
  /** Events of before the window that are not finished; one more than asked for at most. */
  readonly unfinished: number;
  /** Events of before the window that are; no more are counted than asked for. */
  readonly finished: number;
  /** Events of a newer day that has come into the same bucket; one more than asked for at most. */
  readonly newer: number;
}

export interface BatchRow {
  readonly gone: number;
  /** Where the next batch begins. */
  readonly last: string | null;
}

/**
 * What is forgotten, and when; the work under a lock is done by the functions `forget_events` and `forget_marks`.
 *
 * Rows of `workers` and `lives` are not here: the sweep removes them, ten seconds after a worker was seen to be gone.
 */
export class RetentionTable {
  /** Parameters: the window. */
  readonly window;
  /** Indexed by bucket. Parameters: the window's first id, how many unfinished and newer rows are counted, how many finished ones. */
  readonly look: readonly Statement<BucketRow>[];
  /** Indexed by bucket. Parameters: the window's first id, with how many events at most. */
  readonly orphans: readonly Statement<{ here: boolean }>[];
  /** Parameters: bucket, the window's moment. Waits 150 ms for its lock. */
  readonly forgetEvents;
  /** Parameters: bucket. Waits 150 ms for its locks. Never in one transaction with `forgetEvents`. */
  readonly forgetMarks;
  readonly uniqueKeys;
  readonly deadLetters;
  readonly jobRuns;
  readonly jobStates;

  constructor(schema: string) {
    const perBucket = <Row>(name: string, sql: string): Statement<Row>[] =>
      Array.from({ length: 10 }, (_, b) =>
        statement<Row>(`${name}_${b}`, inSchema(schema, sql.replaceAll('{b}', `${b}`))),
      );
    this.window = statement<WindowRow>('purge_window', inSchema(schema, windowSql));
    this.look = perBucket<BucketRow>('purge_look', lookSql);
    this.orphans = perBucket<{ here: boolean }>('purge_orphans', orphansSql);
    const forget = (name: string, call: string): Statement<{ kept: number }> =>
      statement<{ kept: number }>(name, inSchema(schema, `SELECT kept FROM outbox.${call}`));
    this.forgetEvents = forget('forget_events', 'forget_events($1::int, $2::timestamptz)');
    this.forgetMarks = forget('forget_marks', 'forget_marks($1::int)');
    this.uniqueKeys = statement<BatchRow>('purge_unique_keys', inSchema(schema, uniqueKeysSql));
    this.deadLetters = statement<BatchRow>('purge_dead_letters', inSchema(schema, deadLettersSql));
    this.jobRuns = statement<BatchRow>('purge_job_runs', inSchema(schema, jobRunsSql));
    this.jobStates = statement<BatchRow>('purge_job_states', inSchema(schema, jobStatesSql));
  }
}

/** Whole days, by the database's clock: a bucket holds the ids of one UTC day. */
const windowSql = `
SELECT w.before::text AS before, outbox.uuid7_floor(w.before)::text AS first
FROM (SELECT date_trunc('day', least(statement_timestamp() - $1::interval, (SELECT min(d.verified_to) FROM outbox.durables d WHERE d.state = 'active'))
  AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS before) w`;

/**
 * What `forget_events` would meet, counted without its lock; what is unfinished is said there once more. Everything is
 * counted up to a limit, and nothing at all when no event is old, which is nine buckets of ten. A marked event of a type
 * that is still to be back-filled counts as unfinished: it is set aside as well.
 */
const lookSql = `
WITH o AS MATERIALIZED (SELECT id FROM outbox.events_{b} WHERE id < $1::uuid ORDER BY id LIMIT 1),
u AS MATERIALIZED (SELECT w.id FROM (
      (SELECT event_id AS id FROM outbox.queue WHERE (SELECT true FROM o) AND event_id < $1::uuid AND outbox.bucket(event_id) = {b} LIMIT $2::int + 1)
      UNION (SELECT event_id FROM outbox.deliveries WHERE (SELECT true FROM o) AND event_id < $1::uuid AND outbox.bucket(event_id) = {b} LIMIT $2::int + 1)
      UNION (SELECT e.id FROM outbox.durable_types t CROSS JOIN LATERAL (SELECT x.id FROM outbox.events_{b} x
        WHERE x.id > t.backfill_to AND x.id < $1::uuid AND x.type LIKE t.matcher OFFSET 0) e
        WHERE (SELECT true FROM o) AND t.backfill_to IS NOT NULL AND t.ended_at IS NULL
          AND t.durable NOT IN (SELECT n.id FROM outbox.durables n WHERE n.state = 'retired') LIMIT $2::int + 1)) w
      WHERE (SELECT true FROM outbox.events_{b} e WHERE e.id = w.id) LIMIT $2::int + 1)
SELECT (SELECT id::text FROM o) AS oldest, (SELECT count(*)::int FROM u) AS unfinished,
  (SELECT count(*)::int FROM (SELECT FROM outbox.events_{b} WHERE id < $1::uuid LIMIT (SELECT count(*) FROM u) + $3::int) n)
    - (SELECT count(*)::int FROM u) AS finished,
  (SELECT count(*)::int FROM (SELECT FROM outbox.events_{b} WHERE (SELECT true FROM o) AND id >= $1::uuid LIMIT $2::int + 1) n) AS newer`;

/**
 * Whether marks or attempts of before the window have lost their events: a pass ended between the two transactions. To
 * be asked when old events are gone or few: over a day that is still there it reads all of it. Not while the bucket has
 * more events than its second parameter says, of a newer day then: all their marks would be set aside, and marks without
 * events can wait for the end of that day.
 */
const orphansSql = `
SELECT (EXISTS (SELECT 1 FROM outbox.handled_{b} h WHERE h.event_id < $1::uuid AND (SELECT true FROM outbox.events_{b} e WHERE e.id = h.event_id) IS NULL)
  OR EXISTS (SELECT 1 FROM outbox.attempts_{b} a WHERE a.event_id < $1::uuid AND (SELECT true FROM outbox.events_{b} e WHERE e.id = a.event_id) IS NULL))
  AND (SELECT count(*) FROM (SELECT FROM outbox.events_{b} LIMIT $2::int + 1) n) <= $2::int AS here`;

/**
 * Every batch begins where the last one ended: while an old snapshot is held somewhere, each would walk over all that
 * those before it deleted. What somebody has locked is left to the next pass. Parameters: from, batch.
 */
const uniqueKeysSql = `
WITH old AS MATERIALIZED (SELECT ctid AS tid, expires_at FROM outbox.unique_keys WHERE expires_at >= $1::timestamptz AND expires_at <= statement_timestamp()
      ORDER BY expires_at LIMIT $2::int FOR UPDATE SKIP LOCKED),
d AS (DELETE FROM outbox.unique_keys WHERE ctid = ANY (ARRAY(SELECT tid FROM old)))
SELECT count(*)::int AS gone, max(expires_at)::text AS last FROM old`;

/** Resolved ones only: an open letter is never forgotten. Parameters: from, batch, how long they are kept. */
const deadLettersSql = `
WITH old AS MATERIALIZED (SELECT ctid AS tid, resolved_at FROM outbox.dead_letters
      WHERE resolved_at >= $1::timestamptz AND resolved_at < statement_timestamp() - $3::interval
      ORDER BY resolved_at LIMIT $2::int FOR UPDATE SKIP LOCKED),
d AS (DELETE FROM outbox.dead_letters WHERE ctid = ANY (ARRAY(SELECT tid FROM old)))
SELECT count(*)::int AS gone, max(resolved_at)::text AS last FROM old`;

/**
 * The jobs by a walk over the primary key, whether their state is still there or not; the runs of each from the oldest
 * on. Parameters: batch, how long they are kept, how many of a job.
 */
const jobRunsSql = `
WITH RECURSIVE j AS (SELECT (SELECT job FROM outbox.job_runs ORDER BY job LIMIT 1) AS job
      UNION ALL SELECT (SELECT r.job FROM outbox.job_runs r WHERE r.job > j.job ORDER BY r.job LIMIT 1) FROM j WHERE j.job IS NOT NULL),
old AS MATERIALIZED (SELECT x.tid FROM j CROSS JOIN LATERAL (SELECT r.ctid AS tid FROM outbox.job_runs r
      WHERE r.job = j.job AND (r.slot < statement_timestamp() - $2::interval OR (r.slot, r.attempt) <= (SELECT n.slot, n.attempt FROM outbox.job_runs n
        WHERE n.job = j.job ORDER BY n.slot DESC, n.attempt DESC OFFSET $3::int LIMIT 1))
      ORDER BY r.slot, r.attempt LIMIT $1::int FOR UPDATE SKIP LOCKED) x LIMIT $1::int),
d AS (DELETE FROM outbox.job_runs WHERE ctid = ANY (ARRAY(SELECT tid FROM old)))
SELECT count(*)::int AS gone, NULL::text AS last FROM old`;

/** With the marks of tenants that their last slot may have left. One row a job: all at once. Parameters: how long unseen. */
const jobStatesSql = `
WITH s AS (DELETE FROM outbox.job_state WHERE seen_at < statement_timestamp() - $1::interval RETURNING job),
t AS (DELETE FROM outbox.job_tenants t USING s WHERE t.job = s.job)
SELECT count(*)::int AS gone, NULL::text AS last FROM s`;
