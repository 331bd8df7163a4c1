import { dueOf, queuedOf } from './where-queued.js';
import { inSchema, statement } from './wire/statement.js';

/** What is known of an event's way, all of one snapshot. Times are milliseconds of the database's clock. */
export interface EventFacts {
  readonly id: string;
  /** `letter`: the event is forgotten, and a dead letter still holds it. */
  readonly place: 'events' | 'scheduled' | 'letter';
  readonly type: string;
  readonly tenant_id: string | null;
  readonly subject: string | null;
  readonly payload: unknown;
  readonly headers: Record<string, string> | null;
  readonly created_ms: number;
  readonly due_ms: number;
  readonly queue: { readonly due_ms: number; readonly attempts: number; readonly error: string | null } | null;
  /** When it was cancelled for all, registered or not. */
  readonly cancelled_ms: number | null;
  readonly letters: readonly LetterFacts[];
  readonly durables: readonly DurableFacts[];
}

export interface LetterFacts {
  /** As it was named when it gave up; `#relay` when the event could not be forwarded. */
  readonly durable: string;
  /** null: of the relay, or of nobody any more. */
  readonly number: number | null;
  readonly dead_ms: number;
  readonly attempts: number | null;
  readonly error: string | null;
  readonly resolved_ms: number | null;
  readonly resolution: string | null;
}

/** One durable that has a type of the event's, a verdict or a row. */
export interface DurableFacts {
  readonly number: number;
  readonly name: string;
  readonly state: 'active' | 'retired';
  readonly seen_ms: number | null;
  /** One of its types is the event's, began before the event was published, and was not ended. */
  readonly meant: boolean;
  /** When the first of those types began; null: from the beginning, or there is none. */
  readonly since_ms: number | null;
  /** When the last of them was ended. */
  readonly ended_ms: number | null;
  /** Its history is being filled in, and this event's turn is still to come. */
  readonly filling: boolean;
  readonly mark: {
    readonly verdict: 'd' | 'x' | 'c';
    readonly attempts: number;
    readonly started_ms: number;
    readonly worker: number | null;
    readonly app: string | null;
  } | null;
  readonly row: RowFacts | null;
  readonly running: {
    readonly worker: number;
    readonly app: string | null;
    readonly started_ms: number;
    /** When this very attempt was recorded as failed: its time was up, and its handler has not ended since. */
    readonly failed_ms: number | null;
  } | null;
  /** What holds it back now; also before any claim has found it. */
  readonly pause: PauseFacts | null;
  /** Other deliveries of the durable that wait after the same error, and since when that error has been met. */
  readonly like: { readonly count: number; readonly since_ms: number | null };
}

export interface RowFacts {
  readonly due_ms: number;
  readonly attempt: number;
  readonly interruptions: number;
  readonly snoozes: number;
  readonly lease: number | null;
  readonly error: string | null;
  /** Of the worker that has it. */
  readonly app: string | null;
  /** That worker was seen a moment ago. */
  readonly held: boolean;
}

export interface PauseFacts {
  readonly kind: 'durable' | 'type' | 'tenant';
  readonly name: string;
  readonly reason: string | null;
  readonly paused_by: string | null;
  readonly since_ms: number;
  readonly until_ms: number | null;
}

/** What does not depend on an event. */
export interface SceneFacts {
  readonly now_ms: number;
  /** The time zone of the session, as psql would show times. */
  readonly zone: string;
  /** Workers that were seen a moment ago. */
  readonly living: number;
  /** When any was seen last; null when there is none. */
  readonly seen_ms: number | null;
}

/** What `explain` asks. Reads alone, by index alone but for a unique key of an unknown type. */
export class ExplainTable {
  /** No parameters. */
  readonly scene;
  /** Parameters: ids. One row an event, newest first; an event of which there is nothing has none. */
  readonly facts;
  /** Parameters: subject, type or null, tenant or null, limit. */
  readonly bySubject;
  /** Parameters: key, type or null, tenant or null, limit. */
  readonly byKey;

  constructor(schema: string) {
    this.scene = statement<SceneFacts>('explain_scene', inSchema(schema, sceneSql));
    this.facts = statement<EventFacts>('explain_facts', inSchema(schema, factsSql));
    this.bySubject = statement<{ id: string }>('explain_subject', inSchema(schema, bySubjectSql));
    this.byKey = statement<{ id: string }>('explain_key', inSchema(schema, byKeySql));
  }
}

const ms = (time: string): string =>
  `CASE WHEN isfinite(${time}) THEN floor(extract(epoch FROM ${time}) * 1000)::bigint END`;

/** Workers say every 5 s that they are there; three of those may be late on a busy machine. */
const seenLately = (worker: string): string =>
  `coalesce(${worker}.gone_at IS NULL AND ${worker}.seen_at > statement_timestamp() - interval '15 seconds', false)`;

/** Sent behind the facts, and by the clock that runs: nothing that they show is of later than now. */
const sceneSql = `
SELECT ${ms('clock_timestamp()')} AS now_ms, current_setting('TimeZone') AS zone,
  count(*) FILTER (WHERE ${seenLately('w')})::int AS living, ${ms('max(w.seen_at)')} AS seen_ms FROM outbox.workers w`;

/** One event, wherever it is: in `events`, in `scheduled`, or in its dead letters alone. */
const eventSql = `(
    SELECT 'events' AS place, e.type, e.tenant_id, e.subject, e.payload, e.headers, e.created_at, ${dueOf('i.id')} AS due_at FROM outbox.events e WHERE e.bucket = outbox.bucket(i.id) AND e.id = i.id
    UNION ALL SELECT 'scheduled', s.type, s.tenant_id, s.subject, s.payload, s.headers, s.created_at, s.due_at FROM outbox.scheduled s WHERE s.id = i.id
    UNION ALL SELECT 'letter', l.type, l.tenant_id, l.subject, l.payload, l.headers, l.created_at, ${dueOf('i.id')} FROM outbox.dead_letters l WHERE l.event_id = i.id
    LIMIT 1)`;

const lettersSql = `(
    SELECT json_agg(json_build_object('durable', l.durable, 'dead_ms', ${ms('l.dead_at')}, 'attempts', l.attempts, 'error', l.error,
      'resolved_ms', ${ms('l.resolved_at')}, 'resolution', l.resolution,
      'number', (SELECT n.id FROM outbox.durables n WHERE n.name = l.durable OR l.durable = ANY (n.formerly) LIMIT 1)) ORDER BY l.durable) AS all
    FROM outbox.dead_letters l WHERE l.event_id = i.id)`;

/** As the claim asks it; see `v4/claims.ts`. */
const pauseSql = `(
    SELECT p.kind, p.name, p.reason, p.paused_by, ${ms('p.since')} AS since_ms, ${ms('p.until')} AS until_ms FROM outbox.pauses p
    WHERE p.ended_at IS NULL AND (p.until IS NULL OR p.until > statement_timestamp())
      AND CASE p.kind WHEN 'durable' THEN p.durable = n.id WHEN 'type' THEN e.type LIKE p.matcher WHEN 'tenant' THEN p.name = e.tenant_id ELSE false END
    ORDER BY p.id LIMIT 1)`;

const firstLine = (text: string): string => `split_part(${text}, E'\\n', 1)`;

/** Out of the next thousand that wait for their time: a durable may have millions, and one incident shows at once. */
const likeSql = `(
    SELECT count(*)::int AS count, ${ms('min(a.first)')} AS since_ms
    FROM (SELECT o.event_id FROM (SELECT d.event_id, d.last_error FROM outbox.deliveries d WHERE d.durable = n.id AND d.lease IS NULL AND d.interruptions < 3
        AND d.due_at > statement_timestamp() ORDER BY d.due_at LIMIT 1000) o
      WHERE x.last_error IS NOT NULL AND o.event_id <> i.id AND ${firstLine('o.last_error')} = ${firstLine('x.last_error')}) s
    LEFT JOIN LATERAL (SELECT min(t.failed_at) AS first FROM outbox.attempts t WHERE t.bucket = outbox.bucket(s.event_id) AND t.event_id = s.event_id AND t.durable = n.id
      AND ${firstLine('t.error')} = ${firstLine('x.last_error')}) a ON true)`;

const durablesSql = `(
    SELECT json_agg(json_build_object('number', n.id, 'name', n.name, 'state', n.state, 'seen_ms', ${ms('n.seen_at')},
      'meant', n.state = 'active' AND coalesce(t.meant, false), 'since_ms', ${ms('t.since')}, 'ended_ms', ${ms('t.ended')}, 'filling', coalesce(t.filling, false),
      'mark', CASE WHEN h.event_id IS NOT NULL THEN json_build_object('verdict', h.verdict, 'attempts', h.attempts, 'started_ms', ${ms('h.started_at')}, 'worker', h.worker, 'app', hw.app) END,
      'row', CASE WHEN x.event_id IS NOT NULL THEN json_build_object('due_ms', ${ms('x.due_at')}, 'attempt', x.attempt, 'interruptions', x.interruptions,
        'snoozes', x.snoozes, 'lease', x.lease, 'error', x.last_error, 'app', xw.app, 'held', ${seenLately('xw')}) END,
      'running', to_json(r), 'pause', to_json(p), 'like', to_json(k)) ORDER BY n.name) AS all
    FROM outbox.durables n
    LEFT JOIN LATERAL (SELECT bool_or(y.ended_at IS NULL AND e.created_at >= y.since) AS meant, min(y.since) FILTER (WHERE y.ended_at IS NULL) AS since, max(y.ended_at) AS ended,
        bool_or(y.ended_at IS NULL AND y.backfill_to < i.id) AS filling, count(*) AS types
      FROM outbox.durable_types y WHERE y.durable = n.id AND e.type LIKE y.matcher) t ON true
    LEFT JOIN outbox.handled h ON h.bucket = outbox.bucket(i.id) AND h.event_id = i.id AND h.durable = n.id
    LEFT JOIN outbox.workers hw ON hw.id = h.worker
    LEFT JOIN outbox.deliveries x ON x.event_id = i.id AND x.durable = n.id
    LEFT JOIN outbox.workers xw ON xw.id = x.lease
    LEFT JOIN LATERAL (SELECT w.worker, w.app, ${ms('w.started_at')} AS started_ms,
        (SELECT ${ms('max(f.failed_at)')} FROM outbox.attempts f WHERE f.bucket = outbox.bucket(i.id) AND f.event_id = i.id AND f.durable = n.id AND f.failed_at > w.started_at) AS failed_ms
      FROM outbox.deliveries_running w WHERE w.event_id = i.id AND w.durable = n.id LIMIT 1) r ON true
    LEFT JOIN LATERAL ${pauseSql} p ON true
    LEFT JOIN LATERAL ${likeSql} k ON true
    WHERE t.types > 0 OR h.event_id IS NOT NULL OR x.event_id IS NOT NULL)`;

/**
 * One statement, so that it is one snapshot: a delivery that is handled while it is asked for has a row, or a mark, and
 * not neither. What a broker holds has neither indeed.
 */
const factsSql = `
SELECT i.id, e.place, e.type, e.tenant_id, e.subject, e.payload, e.headers, ${ms('e.created_at')} AS created_ms, ${ms('e.due_at')} AS due_ms,
  CASE WHEN q.due_at IS NOT NULL THEN json_build_object('due_ms', ${ms('q.due_at')}, 'attempts', q.attempts, 'error', q.last_error) END AS queue,
  (SELECT ${ms('c.started_at')} FROM outbox.handled c WHERE c.bucket = outbox.bucket(i.id) AND c.event_id = i.id AND c.durable = 0) AS cancelled_ms,
  coalesce(l.all, '[]') AS letters, coalesce(d.all, '[]') AS durables
FROM unnest($1::uuid[]) i(id) CROSS JOIN LATERAL ${eventSql} e
LEFT JOIN LATERAL ${queuedOf('i.id')} q ON true
LEFT JOIN LATERAL ${lettersSql} l ON true
LEFT JOIN LATERAL ${durablesSql} d ON true
ORDER BY i.id DESC`;

const bySubjectSql = `
SELECT id FROM (
  (SELECT e.id FROM outbox.events e WHERE e.subject = $1::text AND ($2::text IS NULL OR e.type = $2::text) AND ($3::text IS NULL OR e.tenant_id = $3::text) ORDER BY e.id DESC LIMIT $4::int)
  UNION ALL
  (SELECT s.id FROM outbox.scheduled s WHERE s.subject = $1::text AND ($2::text IS NULL OR s.type = $2::text) AND ($3::text IS NULL OR s.tenant_id = $3::text) ORDER BY s.id DESC LIMIT $4::int)
) f ORDER BY id DESC LIMIT $4::int`;

/** Without a type all keys are looked through: about a second for ten million of them. */
const byKeySql = `
SELECT k.event_id AS id FROM outbox.unique_keys k
WHERE k.key = sha256(convert_to('k' || $1::text, 'UTF8')) AND ($2::text IS NULL OR k.type = $2::text) AND ($3::text IS NULL OR k.tenant = $3::text)
ORDER BY k.event_id DESC LIMIT $4::int`;
