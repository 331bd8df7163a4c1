import type { LockKeys } from './schema/schema-name.js';
import { inSchema, statement } from './wire/statement.js';

/** `durables` and `durable_types`: who is to get what, since when. The fan-out reads them, so the relay needs no handler. */
export class DurablesTable {
  readonly registrationLock;
  readonly rename;
  readonly register;
  readonly backfill;

  constructor(schema: string, keys: LockKeys) {
    this.registrationLock = statement('registration_lock', `SELECT pg_advisory_xact_lock(${keys.registration}, 0)`);
    this.rename = statement('rename_durables', inSchema(schema, renameSql));
    this.register = statement<{ id: number; name: string }>('register', inSchema(schema, registerSql));
    this.backfill = statement<{ open: number; found: number }>('backfill', inSchema(schema, backfillSql));
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
