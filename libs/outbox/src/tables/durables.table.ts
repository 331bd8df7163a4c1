import type { LockKeys } from './schema/schema-name.js';
import { inSchema, statement } from './wire/statement.js';

/** `durables` and `durable_types`: who is to get what, since when. The fan-out reads them, so the relay needs no handler. */
export class DurablesTable {
  readonly registrationLock;
  readonly register;
  readonly backfill;

  constructor(schema: string, keys: LockKeys) {
    this.registrationLock = statement('registration_lock', `SELECT pg_advisory_xact_lock(${keys.registration}, 0)`);
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
 * Sent behind `registrationLock` in one message: `since` is read after the lock, so it lies after every fan-out that did
 * not know this durable. An older pod's boot changes nothing: `since` is written once. Parameters: names; then, for
 * each type, its durable's name, pattern, matcher, and whether its history is wanted ('t' or 'f').
 */
const registerSql = `
WITH n AS (INSERT INTO outbox.durables AS d (name, seen_at) SELECT DISTINCT name, clock_timestamp() FROM unnest($1::text[]) name ORDER BY name
      ON CONFLICT (name) DO UPDATE SET seen_at = clock_timestamp() RETURNING id, name),
t AS (INSERT INTO outbox.durable_types (durable, pattern, matcher, since, backfill_to)
      SELECT n.id, p.pattern, p.matcher, CASE WHEN p.beginning THEN '-infinity' ELSE clock_timestamp() END,
             CASE WHEN p.beginning THEN '00000000-0000-0000-0000-000000000000'::uuid END
      FROM unnest($2::text[], $3::text[], $4::text[], $5::boolean[]) p(name, pattern, matcher, beginning) JOIN n ON n.name = p.name
      ON CONFLICT DO NOTHING)
SELECT id, name FROM n`;

/**
 * One chunk of the history of one type that asked for it, without the registration lock: what was forwarded before the
 * registration committed is visible now, what was not is the relay's, and so is what is not due yet (ids carry the due
 * time). Parameters: durables of this process, chunk size.
 */
const backfillSql = `
WITH t AS (SELECT durable, pattern, matcher, backfill_to FROM outbox.durable_types WHERE durable = ANY ($1::smallint[]) AND backfill_to IS NOT NULL
      ORDER BY durable, pattern LIMIT 1 FOR UPDATE SKIP LOCKED),
p AS MATERIALIZED (SELECT e.id, e.type LIKE t.matcher AS hit FROM t CROSS JOIN LATERAL
      (SELECT id, type FROM outbox.events WHERE id > t.backfill_to AND id < outbox.uuid7_floor(statement_timestamp()) ORDER BY id LIMIT $2::int) e),
i AS (INSERT INTO outbox.deliveries (event_id, durable) SELECT p.id, t.durable FROM p, t WHERE p.hit
      AND NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(p.id) AND h.event_id = p.id AND h.durable IN (0, t.durable))
      ON CONFLICT DO NOTHING RETURNING 1),
u AS (UPDATE outbox.durable_types d SET backfill_to = (SELECT max(id::text)::uuid FROM p) FROM t WHERE d.durable = t.durable AND d.pattern = t.pattern)
SELECT (SELECT count(*)::int FROM t) AS open, (SELECT count(*)::int FROM i) AS found`;
