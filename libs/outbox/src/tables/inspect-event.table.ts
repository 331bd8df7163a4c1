import { milliseconds } from './inspect-sql.js';
import { queuedOf } from './where-queued.js';
import { inSchema, statement } from './wire/statement.js';

export interface EventRow {
  readonly place: 'events' | 'scheduled' | 'letter';
  readonly id: string;
  readonly type: string;
  readonly tenant_id: string | null;
  readonly subject: string | null;
  readonly payload: unknown;
  readonly headers: Record<string, string> | null;
  readonly published_ms: number;
}

export interface RelayedRow {
  readonly state: 'scheduled' | 'queued' | 'refused';
  readonly due_ms: number | null;
  readonly tries: number;
  readonly error: string | null;
}

export interface AttemptRow {
  readonly durable: string;
  readonly n: number;
  readonly error: string | null;
  readonly worker: string | null;
  readonly failed_ms: number;
  readonly next_ms: number | null;
}

/** One event. Parameters of all: its id. */
export class InspectEventTable {
  readonly event;
  /** Where it is before its deliveries are; no row: it has been forwarded. */
  readonly relayed;
  readonly attempts;

  constructor(schema: string) {
    this.event = statement<EventRow>('inspect_event', inSchema(schema, eventSql));
    this.relayed = statement<RelayedRow>('inspect_relayed', inSchema(schema, relayedSql));
    this.attempts = statement<AttemptRow>('inspect_attempts', inSchema(schema, attemptsSql));
  }
}

const told = (created = 'created_at'): string =>
  `type, tenant_id, subject, payload, headers, ${milliseconds(created)} AS published_ms`;

/** An event that is forgotten lives on in its open letters. */
const eventSql = `
SELECT * FROM (
  SELECT 1 AS n, 'events' AS place, id, ${told()} FROM outbox.events WHERE bucket = outbox.bucket($1::uuid) AND id = $1::uuid
  UNION ALL SELECT 2, 'scheduled', id, ${told()} FROM outbox.scheduled WHERE id = $1::uuid
  UNION ALL SELECT 3, 'letter', event_id, ${told()} FROM outbox.dead_letters WHERE event_id = $1::uuid AND resolved_at IS NULL) x ORDER BY n LIMIT 1`;

const relayedSql = `
SELECT * FROM (
  SELECT 1 AS n, 'scheduled' AS state, ${milliseconds('s.due_at')} AS due_ms, 0 AS tries, NULL AS error FROM outbox.scheduled s WHERE s.id = $1::uuid
  UNION ALL SELECT 2, 'queued', ${milliseconds('q.due_at')}, q.attempts, q.last_error FROM ${queuedOf('$1::uuid')} q
  UNION ALL SELECT 3, 'refused', NULL, l.attempts, l.error FROM outbox.dead_letters l WHERE l.event_id = $1::uuid AND l.durable = '#relay'
    AND l.resolution IS DISTINCT FROM 'retried') x ORDER BY n LIMIT 1`;

/** Of attempts that were forgotten with their event's day, a letter holds what it was given. */
const attemptsSql = `
WITH a AS MATERIALIZED (SELECT n.name AS durable, a.n, a.error, coalesce(w.app, a.worker::text) AS worker, a.failed_at, a.next_at
    FROM (SELECT *, row_number() OVER (PARTITION BY t.durable ORDER BY t.failed_at DESC) AS back FROM outbox.attempts t
      WHERE t.bucket = outbox.bucket($1::uuid) AND t.event_id = $1::uuid) a
    JOIN outbox.durables n ON n.id = a.durable LEFT JOIN outbox.workers w ON w.id = a.worker WHERE a.back <= 20),
l AS MATERIALIZED (SELECT coalesce(i.name, l.durable) AS durable, l.history, l.attempts, l.error, l.dead_at FROM outbox.dead_letters l
    LEFT JOIN outbox.durables i ON i.name = l.durable OR l.durable = ANY (i.formerly)
    WHERE l.event_id = $1::uuid AND l.resolved_at IS NULL AND l.durable <> '#relay' AND NOT EXISTS (SELECT 1 FROM a)),
x AS (SELECT durable, n, error, worker, failed_at, next_at FROM a
  UNION ALL SELECT l.durable, (h ->> 'n')::smallint, h ->> 'error', NULL, (h ->> 'at')::timestamptz, NULL FROM l CROSS JOIN LATERAL jsonb_array_elements(l.history) h
  UNION ALL SELECT durable, attempts, error, NULL, dead_at, NULL FROM l WHERE attempts > 0)
SELECT durable, n, error, worker, ${milliseconds('failed_at')} AS failed_ms, ${milliseconds('next_at')} AS next_ms FROM x ORDER BY failed_at, n`;
