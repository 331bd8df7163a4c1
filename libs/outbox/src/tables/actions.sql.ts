import { relayName } from './queue.table.js';

/** In one look beside the action, for the words about it. `k` has the keys, `n` the durable of each. */
const seen = `CASE WHEN l.event_id IS NULL THEN NULL WHEN l.resolved_at IS NULL THEN 'open' ELSE coalesce(l.resolution, 'resolved') END AS letter, n.state,
  w.event_id IS NOT NULL AS waits, w.lease,
  (SELECT h.verdict FROM outbox.handled h WHERE h.bucket = outbox.bucket(k.event_id) AND h.event_id = k.event_id AND h.durable = n.id)::text AS verdict`;

/** The open one, or the last that was closed, under whichever name the durable had. */
const letter = `
  LEFT JOIN LATERAL (SELECT * FROM outbox.dead_letters x WHERE x.event_id = k.event_id AND (x.durable = k.durable OR x.durable = n.name OR x.durable = ANY (n.formerly))
    ORDER BY x.resolved_at IS NOT NULL, x.resolved_at DESC LIMIT 1) l ON true`;

/**
 * Three kinds of deliveries by one statement:
 *
 * - a dead letter: its row decides between two operators, whatever they do with it, so it comes before the verdict. Not
 *   without a verdict to undo, and only while the event's row is there and the durable is active: a letter must not be
 *   closed when nothing is delivered again;
 * - a letter of the relay has no verdict: the event is queued again;
 * - one that waits for its next attempt is due now.
 *
 * The keys in one order, so that two operators wait for each other instead of blocking each other for good.
 */
export const retrySql = `
WITH k AS MATERIALIZED (SELECT g.event_id, g.durable, EXISTS (SELECT 1 FROM outbox.events e WHERE e.bucket = outbox.bucket(g.event_id) AND e.id = g.event_id) AS here
      FROM unnest($1::uuid[], $2::text[]) g(event_id, durable) ORDER BY 1, 2),
n AS MATERIALIZED (SELECT k.event_id, k.durable, d.id, d.name, d.formerly, d.state FROM k CROSS JOIN LATERAL (SELECT r.id, r.name, r.formerly, r.state FROM outbox.durables r
      WHERE r.name = k.durable OR k.durable = ANY (r.formerly) ORDER BY r.name <> k.durable LIMIT 1) d ORDER BY 1, 2),
l AS MATERIALIZED (SELECT k.event_id, k.durable, n.id, x.durable AS written FROM k JOIN n USING (event_id, durable)
      JOIN outbox.dead_letters x ON x.event_id = k.event_id AND (x.durable = n.name OR x.durable = ANY (n.formerly))
      WHERE x.resolved_at IS NULL AND k.here AND n.state = 'active' AND EXISTS (SELECT 1 FROM outbox.handled h
        WHERE h.bucket = outbox.bucket(k.event_id) AND h.event_id = k.event_id AND h.durable = n.id AND h.verdict = 'x') ORDER BY 1, 2),
u AS (UPDATE outbox.dead_letters x SET resolved_at = clock_timestamp(), resolution = 'retried' FROM l
      WHERE x.event_id = l.event_id AND x.durable = l.written AND x.resolved_at IS NULL RETURNING l.event_id, l.durable, l.id),
m AS (DELETE FROM outbox.handled h USING u WHERE h.bucket = outbox.bucket(u.event_id) AND h.event_id = u.event_id AND h.durable = u.id AND h.verdict = 'x'
      RETURNING u.event_id, u.durable, u.id),
i AS (INSERT INTO outbox.deliveries (event_id, durable) SELECT event_id, id FROM m ON CONFLICT DO NOTHING),
f AS (UPDATE outbox.dead_letters x SET resolved_at = clock_timestamp(), resolution = 'retried' FROM k
      WHERE k.durable = '${relayName}' AND k.here AND x.event_id = k.event_id AND x.durable = k.durable AND x.resolved_at IS NULL RETURNING x.event_id, x.durable),
q AS (INSERT INTO outbox.queue (event_id) SELECT event_id FROM f),
t AS (UPDATE outbox.deliveries d SET due_at = clock_timestamp() FROM n
      WHERE d.event_id = n.event_id AND d.durable = n.id AND d.lease IS NULL AND d.due_at > clock_timestamp() RETURNING n.event_id, n.durable),
r AS MATERIALIZED (SELECT event_id, durable FROM m UNION SELECT event_id, durable FROM f UNION SELECT event_id, durable FROM t),
a AS (INSERT INTO outbox.audit (who, action, what, why)
      SELECT $3::text, 'retry', jsonb_strip_nulls(jsonb_build_object('filter', $5::jsonb, 'count', sum(g.n), 'deliveries', jsonb_object_agg(g.durable, g.ids))), $4::text
      FROM (SELECT r.durable, count(*) AS n, jsonb_agg(r.event_id) AS ids FROM r GROUP BY r.durable) g HAVING count(*) > 0)
SELECT k.event_id, k.durable, r.event_id IS NOT NULL AS done, k.here, NULL::boolean AS covers, ${seen}
FROM k LEFT JOIN r ON r.event_id = k.event_id AND r.durable = k.durable
  LEFT JOIN n ON n.event_id = k.event_id AND n.durable = k.durable
  LEFT JOIN outbox.deliveries w ON w.event_id = k.event_id AND w.durable = n.id${letter}`;

/** What `retrySql` would do; nothing is changed. Parameters: event ids, durables. */
export const previewSql = `
WITH k AS MATERIALIZED (SELECT g.event_id, g.durable, EXISTS (SELECT 1 FROM outbox.events e WHERE e.bucket = outbox.bucket(g.event_id) AND e.id = g.event_id) AS here
      FROM unnest($1::uuid[], $2::text[]) g(event_id, durable)),
s AS (SELECT k.event_id, k.durable, k.here, ${seen}, coalesce(w.lease IS NULL AND w.due_at > clock_timestamp(), false) AS later
  FROM k LEFT JOIN LATERAL (SELECT r.id, r.name, r.formerly, r.state FROM outbox.durables r
      WHERE r.name = k.durable OR k.durable = ANY (r.formerly) ORDER BY r.name <> k.durable LIMIT 1) n ON true
    LEFT JOIN outbox.deliveries w ON w.event_id = k.event_id AND w.durable = n.id${letter})
SELECT s.*, NULL::boolean AS covers, later OR coalesce(letter = 'open' AND here AND (durable = '${relayName}' OR state = 'active' AND verdict = 'x'), false) AS done FROM s`;

/**
 * A row for one durable. With a verdict there only when it is asked for, and then the DELETE of the verdict decides
 * between two who do; the letter comes before it, as in a retry. The verdict for all (durable 0) goes as well, or the
 * event would count as cancelled for this one, too. It stood for durables that have registered since, and may have none
 * of their own: each gets one, or what looks for lost events would run it there.
 */
export const sendSql = `
WITH k AS MATERIALIZED (SELECT $1::uuid AS event_id, $2::text AS durable),
e AS MATERIALIZED (SELECT x.type FROM outbox.events x WHERE x.bucket = outbox.bucket($1::uuid) AND x.id = $1::uuid),
n AS MATERIALIZED (SELECT r.id, r.name, r.formerly, r.state FROM outbox.durables r WHERE r.name = $2::text OR $2::text = ANY (r.formerly) ORDER BY r.name <> $2::text LIMIT 1),
c AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM e, n, outbox.durable_types t WHERE t.durable = n.id AND t.ended_at IS NULL AND e.type LIKE t.matcher) AS covers),
h AS MATERIALIZED (SELECT x.durable, x.verdict FROM n, outbox.handled x WHERE x.bucket = outbox.bucket($1::uuid) AND x.event_id = $1::uuid AND x.durable IN (0, n.id)),
o AS MATERIALIZED (SELECT n.* FROM n, c WHERE n.state = 'active' AND c.covers AND ($5::boolean OR NOT EXISTS (SELECT 1 FROM h))
      AND NOT EXISTS (SELECT 1 FROM outbox.deliveries d WHERE d.event_id = $1::uuid AND d.durable = n.id)),
dl AS (UPDATE outbox.dead_letters x SET resolved_at = clock_timestamp(), resolution = 'sent' FROM o
      WHERE x.event_id = $1::uuid AND (x.durable = o.name OR x.durable = ANY (o.formerly)) AND x.resolved_at IS NULL RETURNING 1),
z AS MATERIALIZED (SELECT outbox.cancel_each($1::uuid, o.id) FROM o, h WHERE h.durable = 0),
g AS (DELETE FROM outbox.handled x USING o WHERE x.bucket = outbox.bucket($1::uuid) AND x.event_id = $1::uuid AND x.durable IN (0, o.id)
      AND (SELECT count(*) FROM dl) + (SELECT count(*) FROM z) >= 0 RETURNING x.durable),
i AS (INSERT INTO outbox.deliveries (event_id, durable) SELECT $1::uuid, o.id FROM o
      WHERE NOT EXISTS (SELECT 1 FROM h) OR EXISTS (SELECT 1 FROM g) ON CONFLICT DO NOTHING RETURNING event_id),
a AS (INSERT INTO outbox.audit (who, action, what, why)
      SELECT $3::text, 'send', jsonb_build_object('event', $1::uuid, 'durable', o.name, 'force', $5::boolean), $4::text FROM o, i)
SELECT k.event_id, coalesce(n.name, k.durable) AS durable, EXISTS (SELECT 1 FROM i) AS done, EXISTS (SELECT 1 FROM e) AS here, c.covers,
  NULL AS letter, n.state, w.event_id IS NOT NULL AS waits, w.lease, (SELECT h.verdict FROM h ORDER BY h.durable DESC LIMIT 1)::text AS verdict
FROM k CROSS JOIN c LEFT JOIN n ON true LEFT JOIN outbox.deliveries w ON w.event_id = $1::uuid AND w.durable = n.id`;
