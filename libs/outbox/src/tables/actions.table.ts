import { previewSql, retrySql, sendSql } from './actions.sql.js';
import { inSchema, type Statement, statement } from './wire/statement.js';

/** One of those that a filter looked at. */
export interface FoundRow {
  readonly event_id: string;
  /** As the letter or the durable is called. */
  readonly durable: string;
  /** For the next chunk: the durable's number or name, whichever the keys are in order of. */
  readonly key: string;
  readonly hit: boolean;
  /** Nothing comes after these. */
  readonly end: boolean;
}

/** What an action came to for one delivery, and what was seen there. */
export interface ActedRow {
  readonly event_id: string;
  readonly durable: string;
  readonly done: boolean;
  /** Of the dead letter: `open`, or how it was closed; null when there is none. */
  readonly letter: string | null;
  /** Of the durable; null when there is none of that name. */
  readonly state: 'active' | 'retired' | null;
  /** The event's row is there. */
  readonly here: boolean;
  /** It gets events of this type. */
  readonly covers: boolean | null;
  /** Of its mark: d done, x dead, c cancelled. */
  readonly verdict: string | null;
  readonly waits: boolean;
  /** Negative: minus the pause it is parked under. */
  readonly lease: number | null;
}

/** How many rows one statement looks at, and acts upon. */
export const actedAtOnce = 500;

/**
 * What operators do to deliveries and dead letters, each action with its row of `audit` in the same statement. By filter
 * in two steps: a look that only reads, then the action by keys, so that a chunk that fails can be repeated row by row.
 */
export class ActionsTable {
  /**
   * Sent in front of an action: it knows its rows by their keys, and a plan made for many more would read whole days.
   * What is switched off here and needed all the same (a small table has no other way) looks so dear before PostgreSQL 18
   * that the server would compile for seconds, each time. Ends with the message.
   */
  readonly byKeys = statement(
    'act_by_keys',
    `SELECT ${['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'jit'].map((name) => `set_config('${name}', 'off', true)`).join(', ')}`,
  )();
  /** No parameters. What begins later is no action's. */
  readonly now: Statement<{ now: string }>;
  /** Parameters: after event id, after durable, event id, durable, matcher, tenant, subject, error, from, to, begun. */
  readonly letters: Statement<FoundRow>;
  /** The same, of what waits for another attempt. */
  readonly retryable: Statement<FoundRow>;
  /** Parameters: event ids, durables, who, why, filter as JSON or null. */
  readonly retry: Statement<ActedRow>;
  /** What that would come to. Parameters: event ids, durables. */
  readonly preview: Statement<ActedRow>;
  /** As `retry`. */
  readonly discard: Statement<ActedRow>;
  /** Parameters: event id, durable, who, why, whether in spite of a verdict. */
  readonly send: Statement<ActedRow>;

  constructor(schema: string) {
    this.now = statement('act_now', 'SELECT clock_timestamp()::text AS now');
    this.letters = statement('act_letters', inSchema(schema, lettersSql));
    this.retryable = statement('act_retryable', inSchema(schema, retryableSql));
    this.retry = statement('act_retry', inSchema(schema, retrySql));
    this.preview = statement('act_preview', inSchema(schema, previewSql));
    this.discard = statement('act_discard', inSchema(schema, discardSql));
    this.send = statement('act_send', inSchema(schema, sendSql));
  }
}

/** `s` has the columns of an event, the name of the durable, and the last error. */
const matches = `($4::text IS NULL OR s.durable = $4::text
    OR s.durable IN (SELECT unnest(array_append(n.formerly, n.name)) FROM outbox.durables n WHERE n.name = $4::text OR $4::text = ANY (n.formerly)))
  AND ($5::text IS NULL OR s.type LIKE $5::text) AND ($6::text IS NULL OR s.tenant_id = $6::text) AND ($7::text IS NULL OR s.subject = $7::text)
  AND ($8::text IS NULL OR position(lower($8::text) IN lower(s.error)) > 0)
  AND ($9::timestamptz IS NULL OR s.created_at >= $9::timestamptz) AND ($10::timestamptz IS NULL OR s.created_at < $10::timestamptz)`;

const range = `event_id >= coalesce($3::uuid, '00000000-0000-0000-0000-000000000000') AND event_id <= coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')`;

/**
 * A chunk is what is looked at, not what matches: a filter that matches one of a million must not make one statement of
 * it. The last one comes back whether it matches or not, as where the next chunk begins.
 */
const answer = `
SELECT f.event_id, f.durable, f.key, f.hit, f.n < ${actedAtOnce} AS end
FROM (SELECT s.event_id, s.durable, s.key, coalesce(s.old AND ${matches}, false) AS hit, count(*) OVER () AS n, lead(s.event_id) OVER (ORDER BY s.event_id, s.place) IS NULL AS last
  FROM s) f WHERE f.hit OR f.last ORDER BY f.last, f.event_id, f.durable`;

/** Open ones, by the index of their keys. A letter of after the action's begin is not its. */
const lettersSql = `
WITH s AS MATERIALIZED (SELECT event_id, durable, durable AS key, durable AS place, tenant_id, type, subject, error, created_at, dead_at <= $11::timestamptz AS old
  FROM outbox.dead_letters WHERE resolved_at IS NULL AND (event_id, durable) > ($1::uuid, $2::text) AND ${range}
  ORDER BY event_id, durable LIMIT ${actedAtOnce})${answer}`;

/** What was not tried is not to be retried, and what a worker has it will end. What is parked is named, and stays. */
const retryableSql = `
WITH d AS MATERIALIZED (SELECT event_id, durable, last_error, (lease IS NULL OR lease < 0) AND (attempt > 0 OR snoozes > 0 OR interruptions > 0) AS tried
  FROM outbox.deliveries WHERE (event_id, durable) > ($1::uuid, $2::smallint) AND ${range} AND event_id < outbox.uuid7_floor($11::timestamptz)
  ORDER BY event_id, durable LIMIT ${actedAtOnce}),
s AS (SELECT d.event_id, coalesce(n.name, d.durable::text) AS durable, d.durable::text AS key, d.durable AS place, e.tenant_id, e.type, e.subject, d.last_error AS error, e.created_at, d.tried AS old
  FROM d LEFT JOIN outbox.durables n ON n.id = d.durable LEFT JOIN LATERAL (SELECT x.tenant_id, x.type, x.subject, x.created_at FROM outbox.events x
    WHERE d.tried AND x.bucket = outbox.bucket(d.event_id) AND x.id = d.event_id) e ON true)${answer}`;

/** They keep their verdict: nothing runs. */
const discardSql = `
WITH k AS MATERIALIZED (SELECT event_id, durable FROM unnest($1::uuid[], $2::text[]) g(event_id, durable) ORDER BY 1, 2),
u AS (UPDATE outbox.dead_letters x SET resolved_at = clock_timestamp(), resolution = 'discarded' FROM k
      WHERE x.event_id = k.event_id AND x.durable = k.durable AND x.resolved_at IS NULL RETURNING x.event_id, x.durable),
a AS (INSERT INTO outbox.audit (who, action, what, why)
      SELECT $3::text, 'discard', jsonb_strip_nulls(jsonb_build_object('filter', $5::jsonb, 'count', sum(g.n), 'deliveries', jsonb_object_agg(g.durable, g.ids))), $4::text
      FROM (SELECT u.durable, count(*) AS n, jsonb_agg(u.event_id) AS ids FROM u GROUP BY u.durable) g HAVING count(*) > 0)
SELECT k.event_id, k.durable, u.event_id IS NOT NULL AS done, CASE WHEN l.resolved_at IS NULL AND l.event_id IS NOT NULL THEN 'open' ELSE l.resolution END AS letter,
  NULL AS state, true AS here, NULL::boolean AS covers, NULL AS verdict, false AS waits, NULL::int AS lease
FROM k LEFT JOIN u ON u.event_id = k.event_id AND u.durable = k.durable
  LEFT JOIN outbox.dead_letters l ON l.event_id = k.event_id AND l.durable = k.durable`;
