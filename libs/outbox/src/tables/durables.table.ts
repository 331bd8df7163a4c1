import type { LockKeys } from './schema/schema-name.js';
import { inSchema, statement } from './wire/statement.js';

export interface DurableRow {
  readonly name: string;
  readonly formerly: readonly string[];
  readonly state: 'active' | 'retired';
  readonly seen_ms: number | null;
  readonly types: readonly { readonly pattern: string; readonly since_ms: number | null }[];
  readonly waiting: number;
}

export interface RetiredRow {
  readonly id: number;
  /** Of the type that was ended; null when there is none, or all were. */
  readonly matcher: string | null;
  /** A worker has it: nothing was changed. */
  readonly served: boolean;
}

export interface TypeRow {
  readonly durable: number;
  readonly pattern: string;
  /** null: from the beginning. */
  readonly since_ms: number | null;
}

export interface DroppedRow {
  readonly gone: number;
  /** Where the next chunk begins; null when there is none. */
  readonly last: string | null;
}

/** `durables` and `durable_types`: who is to get what, since when. The fan-out reads them, so the relay needs no handler. */
export class DurablesTable {
  readonly registrationLock;
  readonly rename;
  readonly register;
  readonly beginBrokered;
  readonly backfill;
  /** No parameters. Whether no cancel is under way at this moment; see `cancel` of the schema. */
  readonly quiet;
  /** An operator's statement waits no longer for the registration lock than this. */
  readonly patience = statement('durables_patience', "SELECT set_config('lock_timeout', '5s', true)");
  /** Parameters: ids. */
  readonly types;
  /** Parameters: durable, type. A row when the durable gets that type. */
  readonly meant;
  /** No parameters. */
  readonly list;
  /** Parameters: name, type or null, who, why. Sent behind `registrationLock`. */
  readonly retire;
  /** Parameters: name. Sent behind `registrationLock`. */
  readonly revive;
  /** Parameters: id, matcher or null, the event id to begin behind. */
  readonly drop;

  constructor(schema: string, keys: LockKeys) {
    this.registrationLock = statement('registration_lock', `SELECT pg_advisory_xact_lock(${keys.registration}, 0)`);
    this.rename = statement('rename_durables', inSchema(schema, renameSql));
    this.register = statement<{ id: number; name: string }>('register', inSchema(schema, registerSql));
    this.beginBrokered = statement('begin_brokered', inSchema(schema, beginBrokeredSql));
    this.backfill = statement<{ open: number; found: number }>('backfill', inSchema(schema, backfillSql));
    this.quiet = statement<{ quiet: boolean }>(
      'backfill_quiet',
      `SELECT pg_try_advisory_xact_lock(${keys.registration}, 1) AS quiet`,
    );
    this.types = statement<TypeRow>('durable_types', inSchema(schema, typesSql));
    this.meant = statement('durable_meant', inSchema(schema, meantSql));
    this.list = statement<DurableRow>('durables_list', inSchema(schema, listSql));
    this.retire = statement<RetiredRow>('durables_retire', inSchema(schema, retireSql));
    this.revive = statement('durables_revive', inSchema(schema, reviveSql));
    this.drop = statement<DroppedRow>('durables_drop', inSchema(schema, dropSql));
  }
}

/** The LIKE form of a pattern: `_` is a letter of a name, `*` one whole token. Types have three tokens, so `%` cannot cross one. */
export function matcherOf(pattern: string): string {
  return pattern
    .replaceAll('_', '\\_')
    .split('.')
    .map((token) => (token === '*' ? '%' : token))
    .join('.');
}

/**
 * Sent behind `registrationLock` in one message, in front of `register`. A durable that bore one of the former names
 * takes the new one; its number stays, and with it its deliveries and marks. The old name is kept, so that an older
 * pod that still registers it gets the same durable and not a second one. Parameters: [{ durable, formerly: [] }] as JSON.
 */
const renameSql = `
UPDATE outbox.durables d SET name = r.durable, formerly = array_append(d.formerly, d.name)
FROM jsonb_to_recordset($1::jsonb) r(durable text, formerly jsonb)
WHERE r.formerly ? d.name AND d.name <> r.durable AND NOT EXISTS (SELECT 1 FROM outbox.durables o WHERE o.name = r.durable)`;

/**
 * Sent behind the lock: `since` is read after it, so it lies after every fan-out that did not know this durable. An
 * older pod's boot changes nothing: `since` is written once. A type that takes over a former name begins where that
 * one began, and what was published under the new name before this registration is filled in. Parameters: names of
 * durables; [{ durable, pattern, matcher, beginning, formerly: [] }] as JSON.
 */
const registerSql = `
WITH alias AS (SELECT u.name, d.id FROM unnest($1::text[]) u(name) JOIN outbox.durables d ON u.name = ANY (d.formerly) AND d.name <> u.name),
n AS (INSERT INTO outbox.durables AS d (name, seen_at) SELECT DISTINCT u.name, clock_timestamp() FROM unnest($1::text[]) u(name)
      WHERE u.name NOT IN (SELECT name FROM alias) ORDER BY u.name
      ON CONFLICT (name) DO UPDATE SET seen_at = clock_timestamp() RETURNING id, name),
r AS MATERIALIZED (SELECT id, name FROM n UNION ALL SELECT id, name FROM alias),
t AS (INSERT INTO outbox.durable_types (durable, pattern, matcher, since, backfill_to)
      SELECT r.id, p.pattern, p.matcher, CASE WHEN p.beginning THEN '-infinity' ELSE coalesce(o.since, clock_timestamp()) END,
             CASE WHEN p.beginning OR o.since IS NOT NULL THEN '00000000-0000-0000-0000-000000000000'::uuid END
      FROM jsonb_to_recordset($2::jsonb) p(durable text, pattern text, matcher text, beginning boolean, formerly jsonb)
      JOIN r ON r.name = p.durable
      LEFT JOIN LATERAL (SELECT min(y.since) AS since FROM outbox.durable_types y WHERE y.durable = r.id AND p.formerly ? y.pattern) o ON true
      ON CONFLICT DO NOTHING)
SELECT id, name FROM r`;

/**
 * From here on there may be events that only a broker has: without it the views would not show them until the reconciler
 * has looked for the first time. What lies in the queue may be older than this moment, and so may be what an open
 * transaction commits. Parameters: names of durables.
 */
const beginBrokeredSql = `
UPDATE outbox.durables SET verified_to = least(statement_timestamp(), (SELECT min(due_at) FROM outbox.queue)) - interval '1 minute'
WHERE (name = ANY ($1::text[]) OR formerly && $1::text[]) AND verified_to IS NULL AND state = 'active'`;

/**
 * One chunk of the history of one type that asked for it, without the registration lock: what was forwarded before the
 * registration committed is visible now, what was not is the relay's, and so is what is not due yet (ids carry the due
 * time). Parameters: durables of this process, chunk size.
 */
const backfillSql = `
WITH t AS (SELECT durable, pattern, matcher, since, backfill_to FROM outbox.durable_types WHERE durable = ANY ($1::smallint[]) AND backfill_to IS NOT NULL
      ORDER BY durable, pattern LIMIT 1 FOR UPDATE SKIP LOCKED),
p AS MATERIALIZED (SELECT e.id, e.type LIKE t.matcher AND e.created_at >= t.since AS hit FROM t CROSS JOIN LATERAL
      (SELECT id, type, created_at FROM outbox.events WHERE id > t.backfill_to AND id < outbox.uuid7_floor(statement_timestamp()) ORDER BY id LIMIT $2::int) e),
i AS (INSERT INTO outbox.deliveries (event_id, durable) SELECT p.id, t.durable FROM p, t WHERE p.hit
      AND NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(p.id) AND h.event_id = p.id AND h.durable IN (0, t.durable))
      ON CONFLICT DO NOTHING RETURNING 1),
u AS (UPDATE outbox.durable_types d SET backfill_to = (SELECT CASE WHEN count(*) = $2::int THEN max(id::text)::uuid END FROM p) FROM t WHERE d.durable = t.durable AND d.pattern = t.pattern)
SELECT (SELECT count(*)::int FROM t) AS open, (SELECT count(*)::int FROM i) AS found`;

/** What all living and former versions of the app registered, and nobody ended. */
const typesSql = `
SELECT durable, pattern, CASE WHEN isfinite(since) THEN floor(extract(epoch FROM since) * 1000)::bigint END AS since_ms
FROM outbox.durable_types WHERE durable = ANY ($1::smallint[]) AND ended_at IS NULL ORDER BY durable, pattern`;

const meantSql = `
SELECT 1 FROM outbox.durable_types WHERE durable = $1::smallint AND ended_at IS NULL AND $2::text LIKE matcher LIMIT 1`;

/** `since` is -infinity for a type that began at the beginning. */
const listSql = `
SELECT d.name, to_jsonb(d.formerly) AS formerly, d.state, floor(extract(epoch FROM d.seen_at) * 1000)::bigint AS seen_ms,
  (SELECT coalesce(json_agg(json_build_object('pattern', t.pattern, 'since_ms', CASE WHEN isfinite(t.since) THEN floor(extract(epoch FROM t.since) * 1000)::bigint END)
     ORDER BY t.pattern), '[]') FROM outbox.durable_types t WHERE t.durable = d.id AND t.ended_at IS NULL) AS types,
  (SELECT count(*)::int FROM (SELECT 1 FROM outbox.deliveries x WHERE x.durable = d.id AND x.lease IS NULL LIMIT 10001) w) AS waiting
FROM outbox.durables d ORDER BY d.name`;

/** With a type, the durable stays; it may be handled meanwhile. A pause of the durable ends with it. Once more drops what is left, and is no news to the audit. */
const retireSql = `
WITH d AS MATERIALIZED (SELECT id, $2::text IS NULL AND state = 'active' AND coalesce(seen_at > clock_timestamp() - interval '2 minutes', false) AS served,
        $2::text IS NULL AND state = 'active' OR EXISTS (SELECT 1 FROM outbox.durable_types n WHERE n.durable = id AND n.ended_at IS NULL AND n.pattern = $2::text) AS news
      FROM outbox.durables WHERE name = $1::text),
t AS (UPDATE outbox.durable_types y SET ended_at = coalesce(ended_at, clock_timestamp()), backfill_to = NULL FROM d
      WHERE y.durable = d.id AND NOT d.served AND ($2::text IS NULL OR y.pattern = $2::text) RETURNING y.pattern, y.matcher),
s AS (UPDATE outbox.durables r SET state = 'retired' FROM d WHERE r.id = d.id AND NOT d.served AND $2::text IS NULL RETURNING r.id),
p AS (UPDATE outbox.pauses x SET ended_at = clock_timestamp(), ended_by = $3::text FROM s WHERE x.durable = s.id AND x.ended_at IS NULL),
a AS (INSERT INTO outbox.audit (who, action, what, why) SELECT $3::text, 'retire', jsonb_strip_nulls(jsonb_build_object('durable', $1::text, 'type', $2::text)), $4::text
      FROM d WHERE d.news AND NOT d.served)
SELECT d.id, d.served, (SELECT matcher FROM t WHERE pattern = $2::text) AS matcher FROM d`;

/** What it missed in between it does not get. A broker that has forgotten it may know it again, and be told to forget it once more. */
const reviveSql = `
WITH d AS (UPDATE outbox.durables SET state = 'active', verified_all_at = CASE WHEN isfinite(verified_all_at) THEN verified_all_at END WHERE name = $1::text RETURNING id),
t AS (UPDATE outbox.durable_types y SET ended_at = NULL, since = clock_timestamp() FROM d WHERE y.durable = d.id AND y.ended_at IS NOT NULL)
SELECT id FROM d`;

/**
 * A chunk of what waits for a durable, in the order of ids; of a type alone, unless another of its patterns covers the
 * event as well; what is paused goes, too. What a worker holds ends with that worker's attempt.
 */
const dropSql = `
WITH c AS MATERIALIZED (SELECT ctid AS tid, event_id FROM outbox.deliveries WHERE durable = $1::smallint AND (lease IS NULL OR lease < 0) AND event_id > $3::uuid
      ORDER BY event_id LIMIT 5000 FOR UPDATE SKIP LOCKED),
g AS (DELETE FROM outbox.deliveries WHERE ctid = ANY (ARRAY(SELECT c.tid FROM c LEFT JOIN outbox.events e ON e.bucket = outbox.bucket(c.event_id) AND e.id = c.event_id
      WHERE $2::text IS NULL OR (e.type LIKE $2::text AND NOT EXISTS (SELECT 1 FROM outbox.durable_types t
        WHERE t.durable = $1::smallint AND t.ended_at IS NULL AND e.type LIKE t.matcher)))) RETURNING 1)
SELECT (SELECT count(*)::int FROM g) AS gone, (SELECT max(event_id::text) FROM c) AS last`;
