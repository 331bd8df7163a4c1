/**
 * The soak's own tables. An effect began with its transaction, which begins with the claim. Nothing about effects is unique, so that what is done twice is seen twice.
 */
export const tablesSql = `
CREATE TABLE notes (event_id uuid NOT NULL, type text NOT NULL, how text NOT NULL);
CREATE INDEX ON notes (event_id);
CREATE TABLE effects (event_id uuid NOT NULL, durable text NOT NULL, attempt int, pid int,
  began timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON effects (event_id, durable);
CREATE TABLE ticks (id uuid PRIMARY KEY, slot timestamptz NOT NULL, attempt int, pid int, started timestamptz NOT NULL, ended timestamptz);
CREATE TABLE cancellations (op text NOT NULL, cancelled int NOT NULL)`;

export const noteSql = 'INSERT INTO notes (event_id, type, how) VALUES ($1, $2, $3)';
export const effectSql = 'INSERT INTO effects (event_id, durable, attempt, pid) VALUES ($1, $2, $3, $4)';

/** Repeated until it is answered, hence harmless when repeated. */
export const tickSql = `
INSERT INTO ticks (id, slot, attempt, pid, started, ended) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (id) DO UPDATE SET ended = excluded.ended`;

/** One of the sessions of an application, and the ones after it. */
export const terminateSql = `
SELECT pid, pg_terminate_backend(pid) FROM (
  SELECT pid, row_number() OVER (ORDER BY backend_start, pid) - 1 AS n, count(*) OVER () AS all_of_them
  FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()) s
WHERE n >= floor($2::float8 * all_of_them) AND n < floor($2::float8 * all_of_them) + $3`;

/** What still waits for the relay or for a handler. */
export const waitingSql = `
SELECT (SELECT count(*)::int FROM outbox.queue) + (SELECT count(*)::int FROM outbox.scheduled) AS queued,
  (SELECT count(*)::int FROM outbox.deliveries) AS deliveries, (SELECT count(*)::int FROM effects) AS effects`;

/** Deliveries without an outcome yet: what waits with a broker is in no table. Parameters: types and durables of the subscriptions. */
export const missingSql = `
SELECT count(*)::int AS missing FROM notes n JOIN unnest($1::text[], $2::text[]) s(type, durable) ON s.type = n.type
WHERE NOT EXISTS (SELECT 1 FROM effects f WHERE f.event_id = n.event_id AND f.durable = s.durable)
  AND NOT EXISTS (SELECT 1 FROM outbox.dead_letters l WHERE l.event_id = n.event_id AND l.durable = s.durable)`;

/**
 * Parameters: types and durables of the subscriptions, the durable that fails on purpose, ids that publishers were told
 * are committed. A transaction that published wrote its note as well, or neither: what became of a COMMIT without an
 * answer is what the notes say.
 */
export const countsSql = `
WITH o AS (SELECT event_id, durable, 1 AS effect, 0 AS dead FROM effects
  UNION ALL SELECT event_id, durable, 0, 1 FROM outbox.dead_letters),
x AS MATERIALIZED (SELECT n.event_id, s.durable, n.how = 'poison' AND s.durable = $3 AS poison,
    coalesce(sum(o.effect), 0) AS effects, coalesce(sum(o.dead), 0) AS dead
  FROM notes n JOIN unnest($1::text[], $2::text[]) s(type, durable) ON s.type = n.type
  LEFT JOIN o ON o.event_id = n.event_id AND o.durable = s.durable GROUP BY n.event_id, s.durable, n.how)
SELECT (SELECT count(*)::int FROM notes) AS events, count(*)::int AS deliveries,
  (count(*) FILTER (WHERE effects + dead = 0))::int AS lost,
  coalesce(sum(greatest(effects + dead - 1, 0)), 0)::int AS twice,
  (count(*) FILTER (WHERE dead > 0))::int AS dead, (count(*) FILTER (WHERE dead > 0 AND NOT poison))::int AS "deadByMistake",
  (SELECT count(*)::int FROM unnest($4::uuid[]) a(id) WHERE NOT EXISTS (SELECT 1 FROM notes n WHERE n.event_id = a.id)) AS unkept,
  (SELECT count(*)::int FROM outbox.events e WHERE NOT EXISTS (SELECT 1 FROM notes n WHERE n.event_id = e.id))
    + (SELECT count(*)::int FROM notes n WHERE NOT EXISTS (SELECT 1 FROM outbox.events e WHERE e.id = n.event_id)) AS torn,
  (SELECT count(*)::int FROM effects f WHERE NOT EXISTS (SELECT 1 FROM notes n WHERE n.event_id = f.event_id)) AS unasked,
  (SELECT count(*)::int FROM outbox.attempts) AS failed
FROM x`;

/** The same parameters but the last: deliveries that went wrong, for people. */
export const wrongSql = `
WITH o AS (SELECT event_id, durable, 1 AS effect, 0 AS dead FROM effects
  UNION ALL SELECT event_id, durable, 0, 1 FROM outbox.dead_letters),
x AS (SELECT n.event_id, n.how, s.durable, coalesce(sum(o.effect), 0)::int AS effects, coalesce(sum(o.dead), 0)::int AS dead
  FROM notes n JOIN unnest($1::text[], $2::text[]) s(type, durable) ON s.type = n.type
  LEFT JOIN o ON o.event_id = n.event_id AND o.durable = s.durable GROUP BY n.event_id, s.durable, n.how)
SELECT x.*, e.created_at,
  (SELECT json_agg(json_build_object('attempt', f.attempt, 'pid', f.pid)) FROM effects f WHERE f.event_id = x.event_id AND f.durable = x.durable) AS ran,
  (SELECT json_agg(a) FROM outbox.attempts a JOIN outbox.durables d ON d.id = a.durable WHERE a.event_id = x.event_id AND d.name = x.durable) AS attempts,
  (SELECT json_agg(h) FROM outbox.handled h WHERE h.event_id = x.event_id) AS marks,
  (SELECT json_agg(v) FROM outbox.deliveries v WHERE v.event_id = x.event_id) AS deliveries,
  (SELECT error FROM outbox.dead_letters l WHERE l.event_id = x.event_id AND l.durable = x.durable) AS error
FROM x LEFT JOIN outbox.events e ON e.id = x.event_id
WHERE x.effects + x.dead <> 1 OR (x.dead > 0 AND NOT (x.how = 'poison' AND x.durable = $3)) ORDER BY x.event_id LIMIT 20`;

export const ticksSql = `
SELECT slot, attempt, pid, (extract(epoch FROM started) * 1000)::float8 AS started, (extract(epoch FROM ended) * 1000)::float8 AS ended
FROM ticks ORDER BY started`;
