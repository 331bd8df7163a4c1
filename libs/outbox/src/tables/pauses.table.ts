import { inSchema, type Statement, statement } from './wire/statement.js';

export interface PauseRow {
  readonly id: number;
  readonly kind: 'durable' | 'type' | 'tenant' | 'job';
  readonly name: string;
  readonly reason: string | null;
  readonly paused_by: string | null;
  /** Milliseconds since 1970. */
  readonly since_ms: number;
  readonly until_ms: number | null;
}

export interface FreedRow {
  readonly freed: number;
  /** Where the next chunk begins; null when nothing was found. */
  readonly last: string | null;
}

export interface DurableNameRow {
  readonly id: number;
  readonly name: string;
  /** It is the one; otherwise there is none of that name, and these are all there are. */
  readonly found: boolean;
}

/** What is paused now: neither resumed nor past its end. */
const active = 'p.ended_at IS NULL AND (p.until IS NULL OR p.until > clock_timestamp())';

/** Whether the job of this name is paused, inside another statement. `job` is SQL. */
export const jobPaused = (job: string): string =>
  `EXISTS (SELECT 1 FROM outbox.pauses p WHERE p.kind = 'job' AND p.name = ${job} AND ${active})`;

/** The same of a durable. `durable` is SQL. */
export const durablePaused = (durable: string): string =>
  `EXISTS (SELECT 1 FROM outbox.pauses p WHERE p.kind = 'durable' AND p.durable = ${durable} AND ${active})`;

/** How many parked rows one statement frees. */
export const freedAtOnce = 5_000;

/**
 * `pauses`: what is not to be handled for now. The claim functions obey it, and the statements that begin a job's
 * attempt; everything else only writes it and tidies up behind it.
 *
 *   active ── resumed, or past `until` ──▶ ended ── nothing parked, a minute later ──▶ released
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | a worker, between the parking and its commit | the row, leased to it | the sweep of dead workers; the next claim parks it |
 * | whoever resumes, between two chunks | parked rows of a pause that has ended | the sweep, within a second |
 * | nobody: a claim commits a row under a pause that has been released | a parked row of nobody | the sweep's look at all that is parked, each minute |
 */
export class PausesTable {
  /** Parameters: a name. Its durable, by its name or a former one; without a match all names there are. */
  readonly durable: Statement<DurableNameRow>;
  /** Pauses whose end has passed are over; sent in front of whatever asks for those that are not. */
  readonly expire: Statement;
  /** No row: its end is past. Parameters: kind, name, durable's number or null, matcher or null, reason, by, until. */
  readonly begin: Statement<PauseRow>;
  /** Parameters: kind, name, durable's number or null, by, reason. */
  readonly end: Statement<{ id: number }>;
  /** Sets what is due for a durable aside at once, instead of claim by claim. Parameters: pause, durable. */
  readonly park: Statement<{ parked: number }>;
  readonly list: Statement<PauseRow>;
  /** Those that are over and may have something parked. */
  readonly over: Statement<{ id: number }>;
  /** What is parked under no pause that is active; read once in a while. */
  readonly stranded: Statement<{ id: number }>;
  /** A chunk of what is parked. Parameters: pause, the event id to begin at. */
  readonly free: Statement<FreedRow>;
  /** Parameters: pauses. */
  readonly release: Statement;

  constructor(schema: string) {
    this.durable = statement('pause_durable', inSchema(schema, durableSql));
    this.expire = statement('pause_expire', inSchema(schema, expireSql));
    this.begin = statement('pause_begin', inSchema(schema, beginSql));
    this.end = statement('pause_end', inSchema(schema, endSql));
    this.park = statement('pause_park', inSchema(schema, parkSql));
    this.list = statement('pause_list', inSchema(schema, pausedSql));
    this.over = statement('pause_over', inSchema(schema, overSql));
    this.stranded = statement('pause_stranded', inSchema(schema, strandedSql));
    this.free = statement('pause_free', inSchema(schema, freeSql));
    this.release = statement('pause_release', inSchema(schema, releaseSql));
  }
}

const ms = (column: string): string => `floor(extract(epoch FROM ${column}) * 1000)::bigint`;

/** A durable may have been renamed since it was paused. */
const columns = `p.id, p.kind, coalesce((SELECT n.name FROM outbox.durables n WHERE n.id = p.durable), p.name) AS name,
  p.reason, p.paused_by, ${ms('p.since')} AS since_ms, ${ms('p.until')} AS until_ms`;

const durableSql = `
WITH n AS MATERIALIZED (SELECT id, name FROM outbox.durables WHERE name = $1::text OR $1::text = ANY (formerly) ORDER BY name <> $1::text LIMIT 1)
SELECT id, name, true AS found FROM n UNION ALL (SELECT id, name, false FROM outbox.durables WHERE NOT EXISTS (SELECT 1 FROM n) ORDER BY name)`;

const expireSql = `
UPDATE outbox.pauses SET ended_at = until WHERE ended_at IS NULL AND until <= clock_timestamp()`;

/** The key is the name; of a durable that was renamed while it was paused the standing pause is found by its number. */
const beginSql = `
WITH p AS (INSERT INTO outbox.pauses AS p (kind, name, durable, matcher, reason, paused_by, until)
    SELECT $1::text, coalesce((SELECT s.name FROM outbox.pauses s WHERE s.kind = 'durable' AND s.durable = $3::smallint AND s.ended_at IS NULL), $2::text),
      $3::smallint, $4::text, $5::text, $6::text, $7::timestamptz WHERE $7::timestamptz IS NULL OR $7::timestamptz > clock_timestamp()
    ON CONFLICT (kind, name) WHERE ended_at IS NULL DO UPDATE SET reason = excluded.reason, paused_by = excluded.paused_by, until = excluded.until
    RETURNING *),
a AS (INSERT INTO outbox.audit (who, action, what, why)
    SELECT $6::text, 'pause', jsonb_strip_nulls(jsonb_build_object('pause', p.id, p.kind, $2::text, 'until', p.until)), $5::text FROM p)
SELECT ${columns} FROM p`;

const endSql = `
WITH p AS (UPDATE outbox.pauses p SET ended_at = clock_timestamp(), ended_by = $4::text
    WHERE p.ended_at IS NULL AND p.kind = $1::text AND CASE WHEN $3::smallint IS NULL THEN p.name = $2::text ELSE p.durable = $3::smallint END RETURNING p.*),
a AS (INSERT INTO outbox.audit (who, action, what, why)
    SELECT $4::text, 'resume', jsonb_build_object('pause', p.id, p.kind, $2::text), $5::text FROM p)
SELECT id FROM p`;

/** What is not due stays: on its ladder it needs no parking, and keeps its place. */
const parkSql = `
WITH r AS MATERIALIZED (SELECT ctid AS tid FROM outbox.deliveries WHERE durable = $2::smallint AND lease IS NULL AND interruptions < 3
    AND due_at <= statement_timestamp() AND EXISTS (SELECT 1 FROM outbox.pauses p WHERE p.id = $1::int AND ${active})
    LIMIT ${freedAtOnce} FOR UPDATE SKIP LOCKED),
u AS (UPDATE outbox.deliveries SET lease = -$1::int WHERE ctid = ANY (ARRAY(SELECT tid FROM r)) AND lease IS NULL RETURNING 1)
SELECT count(*)::int AS parked FROM u`;

/** All that is paused, the oldest pause first. */
export const pausedSql = `SELECT ${columns} FROM outbox.pauses p WHERE ${active} ORDER BY p.since, p.id`;

const overSql = `SELECT id FROM outbox.pauses WHERE released_at IS NULL AND ended_at IS NOT NULL ORDER BY id`;

/** By the index of what is parked, from pause to pause. */
const strandedSql = `
WITH RECURSIVE l(lease) AS (SELECT (SELECT d.lease FROM outbox.deliveries d WHERE d.lease < 0 ORDER BY d.lease LIMIT 1)
  UNION ALL SELECT (SELECT d.lease FROM outbox.deliveries d WHERE d.lease < 0 AND d.lease > l.lease ORDER BY d.lease LIMIT 1) FROM l WHERE l.lease IS NOT NULL)
SELECT -lease AS id FROM l WHERE lease IS NOT NULL AND NOT EXISTS (SELECT 1 FROM outbox.pauses p WHERE p.id = -l.lease AND ${active})`;

/**
 * In the order of ids and from where the chunk before ended: while an old snapshot is held somewhere, each would walk
 * over all that those before it freed. An event of several durables may stand on both sides of the border, so the last
 * one is looked at once more.
 */
const freeSql = `
WITH r AS MATERIALIZED (SELECT ctid AS tid, event_id FROM outbox.deliveries WHERE lease = -$1::int AND lease < 0 AND event_id >= $2::uuid
    ORDER BY event_id LIMIT ${freedAtOnce} FOR UPDATE SKIP LOCKED),
f AS (UPDATE outbox.deliveries SET lease = NULL, due_at = clock_timestamp() WHERE ctid = ANY (ARRAY(SELECT tid FROM r)) RETURNING 1)
SELECT (SELECT count(*)::int FROM f) AS freed, (SELECT max(event_id::text) FROM r) AS last`;

/** A claim that read the pause may still commit for a moment. */
const releaseSql = `
UPDATE outbox.pauses p SET released_at = clock_timestamp()
WHERE p.id = ANY ($1::int[]) AND p.released_at IS NULL AND p.ended_at < clock_timestamp() - interval '1 minute'
  AND (SELECT d.event_id FROM outbox.deliveries d WHERE d.lease = -p.id AND d.lease < 0 LIMIT 1) IS NULL`;
