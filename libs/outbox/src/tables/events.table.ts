import { inSchema, statement } from './wire/statement.js';

/** `events` and, because an event enters them in one statement, its rows in `queue`, `scheduled` and `unique_keys`. */
export class EventsTable {
  readonly publishOne;
  readonly publishMany;
  /** Parameters, all arrays: ids, tenants, types, subjects, payloads, headers, times; and for how long events are kept. */
  readonly accept;

  constructor(schema: string) {
    this.publishOne = statement<{ id: string }>('publish_one', inSchema(schema, publishOneSql));
    this.accept = statement<{ id: string }>('accept_events', inSchema(schema, acceptSql));
    this.publishMany = statement<{ id: string; duplicate: boolean }>('publish_many', inSchema(schema, publishManySql));
  }
}

/**
 * One event, due now, without a key: nine publishes of ten. Parameters: tenant (null: the current one), type, subject,
 * payload, headers. The id comes from the CTE and not from RETURNING, so that a role that may only INSERT can publish.
 */
const publishOneSql = `
WITH src AS MATERIALIZED (SELECT outbox.uuid7(due) AS id, due FROM (SELECT clock_timestamp() AS due) x),
e AS (INSERT INTO outbox.events (bucket, id, tenant_id, type, subject, payload, headers)
      SELECT outbox.bucket(id), id, coalesce($1::text, NULLIF(current_setting('app.tenant_id', true), '')), $2::text, $3::text, $4::jsonb, $5::jsonb FROM src),
q AS (INSERT INTO outbox.queue (event_id, due_at) SELECT id, due FROM src)
SELECT id FROM src`;

/**
 * N events, one statement. Parameters, all arrays: tenant, type, subject, payload, headers, what the event is unique by
 * ('p': its payload; 'k' and the caller's key; null: nothing), how long that stands, delay, run-at.
 *
 * The key is hashed here because jsonb's text is the canonical form of a payload; the first letter keeps payloads and
 * callers' keys apart. Keys are upserted in one order, so that two calls cannot deadlock; equal keys of one call are
 * folded before the upsert, or Postgres would refuse to touch a row twice (21000); DO UPDATE always, so that the standing
 * id comes back even from a twin that was not committed yet. One instant decides about expiry (two readings of the clock
 * could prolong a key without giving it to the new event), and a lifetime counts from the due time, so that no key ends
 * before its event has begun. Due later than tomorrow: `scheduled`.
 */
const publishManySql = `
WITH src AS MATERIALIZED (
  SELECT ord, type, subject, payload, headers, ttl, due, due > clock_timestamp() + interval '1 day' AS far,
         sha256(convert_to(CASE unique_by WHEN 'p' THEN 'p' || payload::text ELSE unique_by END, 'UTF8')) AS key,
         coalesce(tenant, NULLIF(current_setting('app.tenant_id', true), '')) AS tenant, outbox.uuid7(due) AS id
  FROM (SELECT *, greatest(clock_timestamp(), coalesce(run_at, clock_timestamp() + coalesce(delay, interval '0'))) AS due
        FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::jsonb[], $6::text[], $7::interval[], $8::interval[], $9::timestamptz[])
          WITH ORDINALITY u(tenant, type, subject, payload, headers, unique_by, ttl, delay, run_at, ord)) x),
lead AS MATERIALIZED (SELECT DISTINCT ON (coalesce(tenant, ''), type, key) coalesce(tenant, '') AS t, type, key, id, due + ttl AS until FROM src
      WHERE key IS NOT NULL ORDER BY coalesce(tenant, ''), type, key, ord),
u AS (INSERT INTO outbox.unique_keys AS k (tenant, type, key, event_id, expires_at)
      SELECT t, type, key, id, until FROM lead ORDER BY t, type, key
      ON CONFLICT (tenant, type, key) DO UPDATE SET
        event_id   = CASE WHEN k.expires_at <= statement_timestamp() THEN excluded.event_id   ELSE k.event_id   END,
        expires_at = CASE WHEN k.expires_at <= statement_timestamp() THEN excluded.expires_at ELSE k.expires_at END
      RETURNING tenant, type, key, event_id),
res AS MATERIALIZED (SELECT src.*, coalesce(u.event_id, src.id) AS final, u.event_id IS NOT NULL AND u.event_id <> src.id AS dup
      FROM src LEFT JOIN u ON src.key IS NOT NULL AND u.tenant = coalesce(src.tenant, '') AND u.type = src.type AND u.key = src.key),
far AS (INSERT INTO outbox.scheduled (id, due_at, tenant_id, type, subject, payload, headers, unique_key)
      SELECT id, due, tenant, type, subject, payload, headers, key FROM res WHERE far AND NOT dup),
e AS (INSERT INTO outbox.events (bucket, id, tenant_id, type, subject, payload, headers, unique_key)
      SELECT outbox.bucket(id), id, tenant, type, subject, payload, headers, key FROM res WHERE NOT far AND NOT dup ORDER BY ord),
q AS (INSERT INTO outbox.queue (event_id, due_at) SELECT id, due FROM res WHERE NOT far AND NOT dup ORDER BY ord)
SELECT final AS id, dup AS duplicate FROM res ORDER BY ord`;

/**
 * Copies of events of another database, under their own ids, without the queue: they were forwarded already. One whose
 * day is forgotten here, or about to be, is left out: its marks may be gone. So is one from the future, whose bucket may
 * still hold an old day.
 */
const acceptSql = `
INSERT INTO outbox.events (bucket, id, tenant_id, type, subject, payload, headers, created_at)
SELECT outbox.bucket(u.id), u.id, u.tenant, u.type, u.subject, u.payload, u.headers, u.at
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::jsonb[], $7::timestamptz[]) u(id, tenant, type, subject, payload, headers, at)
WHERE u.id >= outbox.uuid7_floor(statement_timestamp() - $8::interval) AND u.id < outbox.uuid7_floor(statement_timestamp() + interval '1 hour')
ORDER BY u.id ON CONFLICT DO NOTHING RETURNING id`;
