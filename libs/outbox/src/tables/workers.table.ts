import type { LockKeys } from './schema/schema-name.js';
import { inSchema, statement } from './wire/statement.js';

/** `workers`: who lives. The proof of life is not a row but the session advisory lock (key, worker number). */
export class WorkersTable {
  readonly enrol;
  readonly seen;
  readonly others;
  readonly sweep;
  readonly resign;

  constructor(schema: string, keys: LockKeys) {
    const bind = (sql: string): string => inSchema(schema, sql.replaceAll('{worker}', `${keys.worker}`));
    this.enrol = statement<{ id: number; others: number }>('worker_enrol', bind(enrolSql));
    this.seen = statement('worker_seen', bind(seenSql));
    this.others = statement<{ id: number; app: string; exclusive: boolean }>('worker_others', bind(othersSql));
    this.sweep = statement<{ dead: number; freed: number; others: number }>('worker_sweep', bind(sweepSql));
    this.resign = statement('worker_resign', bind(resignSql));
  }
}

/** Number, then lock, then row: a sweeper never sees a row without its lock. Parameters: app, whether no other may live. */
const enrolSql = `
WITH n AS (SELECT nextval(pg_get_serial_sequence('outbox.workers', 'id'))::int AS id), l AS MATERIALIZED (SELECT id, pg_advisory_lock({worker}, id) FROM n),
v AS (INSERT INTO outbox.lives (worker) SELECT id FROM l)
INSERT INTO outbox.workers (id, app, exclusive) OVERRIDING SYSTEM VALUE SELECT id, $1::text, $2::boolean FROM l RETURNING id, (SELECT count(*)::int FROM outbox.workers) AS others`;

/**
 * Every 5 s; for people, views and health, nothing depends on it. Durables are written once a minute, and those that
 * somebody else is writing now are left to him. Parameters: number, in flight, the durables that it handles.
 */
const seenSql = `
WITH d AS (UPDATE outbox.durables SET seen_at = clock_timestamp() WHERE id = ANY (ARRAY(SELECT id FROM outbox.durables
  WHERE id = ANY ($3::smallint[]) AND (seen_at IS NULL OR seen_at < clock_timestamp() - interval '1 minute') FOR UPDATE SKIP LOCKED)))
UPDATE outbox.workers SET seen_at = clock_timestamp(), in_flight = $2::jsonb WHERE id = $1::int`;

/**
 * Live workers but this one. Parameters: own number (0 before there is one). The try-lock is shared, so that of two who
 * ask at once neither takes a dead worker for a live one.
 */
const othersSql = `
SELECT id, coalesce(app, '') AS app, exclusive FROM outbox.workers
WHERE id <> $1::int AND NOT pg_try_advisory_xact_lock_shared({worker}, id) ORDER BY id`;

/**
 * From seeing that a worker is gone until its number is forgotten: a second more than a statement of the library may run
 * (`statement_timeout` of infrastructure connections). A killed worker's backends still finish the message they have:
 * a fan-out or a take may lease rows after the first sweep found none, and a number without a row is found by no sweep.
 */
const forgetAfter = '10 seconds';

/**
 * Parameters: own number (locks are re-entrant: a sweeper would take its own for free). The dead worker's lock itself is
 * what orders sweepers; rows of a handler that outlived its worker's lock are locked by it and skipped. When nothing is
 * leased to it any more the workers row is marked as gone, then left alone, looked at once more, and removed. A number
 * from before the server's last start, its last recovery or a promotion (`lives` is empty then) lost its lock with the
 * server: that is an outage, and nothing is charged.
 */
const sweepSql = `
WITH dead AS MATERIALIZED (SELECT id, gone_at, started_at > pg_postmaster_start_time() AND EXISTS (SELECT 1 FROM outbox.lives WHERE worker = id) AS crashed FROM outbox.workers
      WHERE id <> $1::int AND pg_try_advisory_xact_lock({worker}, id)),
w AS MATERIALIZED (SELECT * FROM dead WHERE gone_at IS NULL OR gone_at < statement_timestamp() - interval '${forgetAfter}'),
r AS MATERIALIZED (SELECT x.tid, w.crashed FROM w CROSS JOIN LATERAL (SELECT ctid AS tid FROM outbox.deliveries WHERE lease = w.id LIMIT 2000 FOR UPDATE SKIP LOCKED) x),
f AS (UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp(),
      interruptions = interruptions + (ctid = ANY (ARRAY(SELECT tid FROM r WHERE crashed)))::int WHERE ctid = ANY (ARRAY(SELECT tid FROM r)) RETURNING 1),
idle AS MATERIALIZED (SELECT id, gone_at FROM w WHERE (SELECT d.event_id FROM outbox.deliveries d WHERE d.lease = w.id LIMIT 1) IS NULL),
m AS (UPDATE outbox.workers SET gone_at = statement_timestamp() WHERE id = ANY (ARRAY(SELECT id FROM idle WHERE gone_at IS NULL))),
g AS (DELETE FROM outbox.workers WHERE id = ANY (ARRAY(SELECT id FROM idle WHERE gone_at IS NOT NULL))),
v AS (DELETE FROM outbox.lives WHERE worker = ANY (ARRAY(SELECT id FROM idle WHERE gone_at IS NOT NULL)))
SELECT (SELECT count(*)::int FROM dead) AS dead, (SELECT count(*)::int FROM f) AS freed,
       (SELECT count(*)::int FROM outbox.workers WHERE id <> $1::int AND id NOT IN (SELECT id FROM dead)) AS others`;

/**
 * Clean stop: everything leased is free, and the row goes. A row that a dying backend still has locked cannot be freed;
 * then the worker's row stays, because what is leased to a number without one is found by no sweep. Parameters: number.
 */
const resignSql = `
WITH f AS (UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp()
      WHERE ctid = ANY (ARRAY(SELECT ctid FROM outbox.deliveries WHERE lease = $1::int FOR UPDATE SKIP LOCKED)) RETURNING 1),
w AS (DELETE FROM outbox.workers WHERE id = $1::int AND (SELECT count(*) FROM f) = (SELECT count(*) FROM outbox.deliveries WHERE lease = $1::int) RETURNING id)
DELETE FROM outbox.lives WHERE worker IN (SELECT id FROM w)`;
