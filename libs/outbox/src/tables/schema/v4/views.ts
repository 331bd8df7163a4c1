/**
 * An event is meant for a durable when it is of one of its types and was published after the durable began with that
 * type; `when` narrows the types.
 */
const meant = (durable: string, event: string, when = 'true'): string =>
  `EXISTS (SELECT 1 FROM outbox.durable_types y WHERE y.durable = ${durable} AND y.ended_at IS NULL AND ${event}.type LIKE y.matcher AND ${event}.created_at >= y.since AND ${when})`;

/** Nobody has a verdict, the durable's own or the one for all. */
const open = (id: string, durable: string): string =>
  `NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(${id}) AND h.event_id = ${id} AND h.durable IN (0, ${durable}))`;

const rowless = (id: string, durable: string): string =>
  `NOT EXISTS (SELECT 1 FROM outbox.deliveries d WHERE d.event_id = ${id} AND d.durable = ${durable})`;

/**
 * What a worker says it runs is up to five seconds old: a row that it does not hold any more has ended there. A handler
 * that ignores its signal and runs again in the same process is said twice.
 */
const running = `(SELECT DISTINCT ON (event_id, durable, worker) * FROM outbox.deliveries_running ORDER BY event_id, durable, worker, started_at DESC)`;
/** A message is held by nobody's row. */
const runningMessages = `(SELECT DISTINCT ON (event_id, durable) * FROM outbox.deliveries_running ORDER BY event_id, durable, started_at DESC)`;

/** From this event on there may be some without verdict and row: a broker has them, or a back-fill is on its way to them. */
const unverified = `(SELECT i.id, i.name, i.verified_to, least(outbox.uuid7_floor(i.verified_to), (SELECT y.backfill_to FROM outbox.durable_types y
    WHERE y.durable = i.id AND y.ended_at IS NULL AND y.backfill_to IS NOT NULL ORDER BY y.backfill_to LIMIT 1)) AS first FROM outbox.durables i WHERE i.state = 'active')`;

/** The letter of a mark; by the newest of the names that its durable has had, because each may have left one. */
const letterOf = `(SELECT o.error FROM outbox.dead_letters o WHERE h.verdict = 'x' AND o.event_id = h.event_id AND (o.durable = n.name OR o.durable = ANY (n.formerly)) ORDER BY o.dead_at DESC LIMIT 1)`;

/** state, attempts, due_at, since, worker, error, pause: what the branches of the view tell beside the event. */
const branch = (columns: string, from: string, event = 'e', id = `${event}.id`): string =>
  `SELECT ${id} AS event_id, n.name AS durable, ${columns}, ${event}.tenant_id, ${event}.type, ${event}.subject, ${event}.created_at\nFROM ${from}`;

/**
 * The public views: for psql and dashboards. The columns are documented in docs/guide/sql.md and stay.
 *
 * - `deliveries_running`: what workers said within the last ten seconds that they have in hand;
 * - `deliveries_state`: one row a delivery, in one of six states. What is in the queue has no delivery yet, and stands
 *   there once for each durable that is to get it; so does what a broker holds, of which there is no row at all: left the
 *   queue, no verdict, newer than what the reconciler has verified; and what a back-fill has not reached. An event that
 *   could not be forwarded stands there once, under `#relay`, until it is retried;
 * - `pauses_active`: what is paused now.
 */
export const viewsUp = `
CREATE VIEW outbox.pauses_active AS
SELECT p.id, p.kind, coalesce((SELECT n.name FROM outbox.durables n WHERE n.id = p.durable), p.name) AS name, p.reason, p.paused_by, p.since, p.until
FROM outbox.pauses p WHERE p.ended_at IS NULL AND (p.until IS NULL OR p.until > statement_timestamp());

CREATE VIEW outbox.deliveries_running AS
SELECT (x.d ->> 0)::uuid AS event_id, (x.d ->> 1)::smallint AS durable, w.id AS worker, w.app, w.seen_at - (x.d ->> 2)::bigint * interval '1 millisecond' AS started_at
FROM outbox.workers w CROSS JOIN LATERAL jsonb_array_elements(w.in_flight -> 'deliveries') x(d)
WHERE w.gone_at IS NULL AND w.seen_at > statement_timestamp() - interval '10 seconds';

CREATE VIEW outbox.deliveries_state AS
${branch(
  `CASE WHEN r.event_id IS NOT NULL THEN 'running' WHEN d.attempt > 0 OR d.snoozes > 0 OR d.interruptions > 0 THEN 'retryable' ELSE 'pending' END AS state,
  d.attempt AS attempts, d.due_at, r.started_at AS since, r.app AS worker, d.last_error AS error, CASE WHEN d.lease < 0 THEN -d.lease END AS pause`,
  `outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable JOIN outbox.events e ON e.bucket = outbox.bucket(d.event_id) AND e.id = d.event_id
LEFT JOIN ${running} r ON r.event_id = d.event_id AND r.durable = d.durable AND r.worker = d.lease
WHERE ${open('d.event_id', 'd.durable')}`,
)}
UNION ALL
${branch(
  `'pending', 0::smallint, q.due_at, NULL, NULL, q.last_error, NULL`,
  `outbox.queue q JOIN outbox.events e ON e.bucket = outbox.bucket(q.event_id) AND e.id = q.event_id JOIN outbox.durables n ON n.state = 'active' AND ${meant('n.id', 'e')}
WHERE ${open('e.id', 'n.id')} AND ${rowless('e.id', 'n.id')}`,
)}
UNION ALL
${branch(
  `'pending', 0::smallint, s.due_at, NULL, NULL, NULL, NULL`,
  `outbox.scheduled s JOIN outbox.durables n ON n.state = 'active' AND ${meant('n.id', 's')}`,
  's',
)}
UNION ALL
${branch(
  `CASE WHEN r.event_id IS NOT NULL THEN 'running' ELSE 'pending' END, 0::smallint, e.created_at, r.started_at, r.app, NULL, NULL`,
  `${unverified} n JOIN outbox.events e ON e.id >= n.first AND e.id < outbox.uuid7_floor(statement_timestamp())
  AND ${meant('n.id', 'e', '(e.id >= outbox.uuid7_floor(n.verified_to) OR e.id > y.backfill_to)')}
LEFT JOIN ${runningMessages} r ON r.event_id = e.id AND r.durable = n.id
WHERE n.first IS NOT NULL AND ${open('e.id', 'n.id')} AND ${rowless('e.id', 'n.id')} AND NOT EXISTS (SELECT 1 FROM outbox.queue q WHERE q.event_id = e.id)
  AND NOT EXISTS (SELECT 1 FROM outbox.dead_letters l WHERE l.event_id = e.id AND l.durable = '#relay' AND l.resolution IS DISTINCT FROM 'retried')`,
)}
UNION ALL
${branch(
  `CASE h.verdict WHEN 'd' THEN 'completed' WHEN 'x' THEN 'discarded' ELSE 'cancelled' END, h.attempts, NULL, h.started_at, coalesce(w.app, h.worker::text), ${letterOf}, NULL`,
  `outbox.handled h JOIN outbox.events e ON e.bucket = h.bucket AND e.id = h.event_id LEFT JOIN outbox.durables n ON n.id = h.durable LEFT JOIN outbox.workers w ON w.id = h.worker
WHERE h.durable <> 0 OR NOT EXISTS (SELECT 1 FROM outbox.handled o WHERE o.bucket = h.bucket AND o.event_id = h.event_id AND o.durable <> 0)`,
  'e',
  'h.event_id',
)}
UNION ALL
${branch(
  `'discarded', l.attempts, NULL, l.dead_at, NULL, l.error, NULL`,
  `outbox.dead_letters l LEFT JOIN outbox.durables i ON i.name = l.durable OR l.durable = ANY (i.formerly) CROSS JOIN LATERAL (SELECT coalesce(i.name, l.durable) AS name) n
WHERE (l.resolved_at IS NULL OR l.durable = '#relay') AND CASE WHEN l.durable = '#relay' THEN (l.resolved_at IS NULL OR l.resolution IS DISTINCT FROM 'retried'
    AND EXISTS (SELECT 1 FROM outbox.events e WHERE e.bucket = outbox.bucket(l.event_id) AND e.id = l.event_id))
    AND NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(l.event_id) AND h.event_id = l.event_id AND h.durable = 0)
  ELSE ${open('l.event_id', 'i.id').replace('IN (0, i.id)', '= i.id')} AND ${rowless('l.event_id', 'i.id')} END`,
  'l',
  'l.event_id',
)};
COMMENT ON VIEW outbox.deliveries_state IS 'one row a delivery: pending, running, retryable, completed, discarded, cancelled';
`;

export const viewsDown = `
DROP VIEW IF EXISTS outbox.deliveries_state, outbox.deliveries_running, outbox.pauses_active;
`;
