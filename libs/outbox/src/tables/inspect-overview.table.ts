import { aloneFrom } from './deliveries.table.js';
import { countedTo } from './health.table.js';
import { meant, milliseconds, open, rowless, unverified, unverifiedType } from './inspect-sql.js';
import { inSchema, type Statement, statement } from './wire/statement.js';

export interface OverviewDurableRow {
  readonly id: number;
  readonly durable: string;
  readonly retired: boolean;
  readonly seen_ms: number | null;
}

/** A count of deliveries in one state, by durable; several rows of one are to be added. */
export interface StateCountRow {
  readonly dn: number;
  readonly state: 'pending' | 'running' | 'retryable' | 'discarded';
  readonly n: number;
  /** Since when the oldest may run, or is dead. */
  readonly oldest_ms: number | null;
}

export interface MarksRow {
  readonly dn: number;
  readonly completed: number;
  readonly discarded: number;
  readonly cancelled: number;
  /** How long the time is of which these are. */
  readonly over_ms: number;
}

export interface WaitingPlaceRow {
  readonly place: 'queue' | 'scheduled';
  readonly waiting: number;
  /** When the oldest became due; of `scheduled`, when the first will. */
  readonly first_ms: number | null;
}

export interface OverviewWorkerRow {
  readonly number: number;
  readonly app: string;
  readonly running: number;
  readonly seen_ms: number;
}

/** What a broker may hold is looked up one by one. */
const messagesTo = 2_001;
/** The newest marks are at the end of each day's table, and so many pages hold ten thousand of them. */
const newestPages = 90;
const newestMarks = 10_000;

/**
 * The figures of the overview, all of them capped: each statement reads what an index has first, to a limit, however
 * many millions there are. Parameters of those that count: matcher of types, or null.
 */
export class InspectOverviewTable {
  /** No parameters. */
  readonly at = statement<{ at_ms: number }>('overview_at', `SELECT ${milliseconds('statement_timestamp()')} AS at_ms`);
  readonly durables;
  /** What the states' counts are added up from. */
  readonly counts: readonly Statement<StateCountRow>[];
  readonly marks;
  readonly places;
  /** No parameters. */
  readonly workers;

  constructor(schema: string) {
    this.durables = statement<OverviewDurableRow>('overview_durables', inSchema(schema, durablesSql));
    this.counts = Object.entries(countSql).map(([name, sql]) =>
      statement<StateCountRow>(`overview_${name}`, inSchema(schema, sql)),
    );
    this.marks = statement<MarksRow>('overview_marks', inSchema(schema, marksSql));
    this.places = statement<WaitingPlaceRow>('overview_places', inSchema(schema, placesSql));
    this.workers = statement<OverviewWorkerRow>('overview_workers', inSchema(schema, workersSql));
  }
}

const durablesSql = `
SELECT id, name AS durable, state = 'retired' AS retired, ${milliseconds('seen_at')} AS seen_ms FROM outbox.durables ORDER BY name`;

/** Of each of these rows an event would be looked up: fewer of them. */
const ofTypeTo = 2_001;
const limit = `LIMIT CASE WHEN $1::text IS NULL THEN ${countedTo} ELSE ${ofTypeTo} END`;

/** Behind the limit, or rows that never match would be read to their end. */
const ofType = (id: string): string =>
  `CASE WHEN $1::text IS NULL THEN true ELSE (SELECT e.type LIKE $1::text FROM outbox.events e WHERE e.bucket = outbox.bucket(${id}) AND e.id = ${id}) END`;

const retried = 'd.attempt > 0 OR d.snoozes > 0 OR d.interruptions > 0';
const counted = (from: string): string =>
  `SELECT d.dn, CASE WHEN d.retried THEN 'retryable' ELSE 'pending' END AS state, least(count(*), ${countedTo})::int AS n, ${milliseconds('min(d.due_at) FILTER (WHERE d.due_at <= statement_timestamp())')} AS oldest_ms
FROM (${from}) d WHERE ${ofType('d.event_id')} GROUP BY 1, 2`;

/** In the order of due times: what waits now comes first, the ladder behind it. */
const waiting = (interruptions: string): string =>
  `SELECT d.event_id, d.due_at, ${retried} AS retried FROM outbox.deliveries d WHERE d.durable = n.id AND d.lease IS NULL AND d.interruptions ${interruptions}
    ORDER BY d.due_at ${limit}`;

const readySql = counted(`SELECT n.id::int AS dn, w.* FROM outbox.durables n CROSS JOIN LATERAL (
  (${waiting(`< ${aloneFrom}`)}) UNION ALL (${waiting(`>= ${aloneFrom}`)})) w`);

/** Pause by pause, because the index begins with it. */
const parkedSql =
  counted(`SELECT d.durable::int AS dn, d.event_id, d.due_at, d.retried FROM outbox.pauses p CROSS JOIN LATERAL (
  SELECT d.event_id, d.durable, d.due_at, ${retried} AS retried FROM outbox.deliveries d WHERE d.lease = -p.id AND d.lease < 0 ${limit}) d
WHERE p.released_at IS NULL`);

const runningSql = `
SELECT g.durable::int AS dn, 'running' AS state, count(DISTINCT g.event_id)::int AS n, NULL::bigint AS oldest_ms
FROM outbox.deliveries_running g WHERE ${ofType('g.event_id')} GROUP BY 1`;

/**
 * What workers have fetched and not begun, as they said it: no index has it, and behind handlers that hang it is all
 * that there is. Also of a worker that is gone and not swept yet, since nobody else has its rows. Of types they say nothing.
 */
const leasedSql = `
SELECT (x.d ->> 0)::int AS dn, 'pending' AS state, least(sum((x.d ->> 1)::int), ${countedTo})::int AS n, NULL::bigint AS oldest_ms
FROM outbox.workers w CROSS JOIN LATERAL jsonb_array_elements(w.in_flight -> 'leased') x(d) WHERE w.gone_at IS NULL AND $1::text IS NULL GROUP BY 1`;

/** With a broker, from the oldest on that may still be there. */
const messagesSql = `
SELECT n.id::int AS dn, 'pending' AS state, count(*)::int AS n, ${milliseconds('min(w.created_at)')} AS oldest_ms
FROM ${unverified} n CROSS JOIN LATERAL (SELECT e.id, e.created_at FROM (SELECT e.id, e.type, e.created_at FROM outbox.events e WHERE e.id >= n.first
    AND e.id < outbox.uuid7_floor(statement_timestamp()) ORDER BY e.id LIMIT ${messagesTo} OFFSET 0) e
  WHERE ($1::text IS NULL OR e.type LIKE $1::text) AND ${meant('n.id', 'e', unverifiedType('e.id', 'n'))} AND ${open('e.id', 'n.id')} AND ${rowless('e.id', 'n.id')}) w
WHERE n.first IS NOT NULL AND NOT EXISTS (SELECT 1 FROM outbox.deliveries_running g WHERE g.event_id = w.id AND g.durable = n.id)
  AND NOT EXISTS (SELECT 1 FROM outbox.queue q WHERE q.event_id = w.id) GROUP BY 1`;

const byType = (rows: string): string => `
SELECT n.id::int AS dn, 'pending' AS state, least(sum(w.n), ${countedTo})::int AS n, ${milliseconds('min(w.due_at) FILTER (WHERE w.due_at <= statement_timestamp())')} AS oldest_ms
FROM (${rows}) w JOIN outbox.durables n ON n.state = 'active' AND EXISTS (SELECT 1 FROM outbox.durable_types y WHERE y.durable = n.id AND y.ended_at IS NULL
  AND w.type LIKE y.matcher AND w.newest >= y.since) WHERE $1::text IS NULL OR w.type LIKE $1::text GROUP BY 1`;

/** By type first, or the patterns of every durable would be tried on each of ten thousand rows. */
const queuedSql = byType(`SELECT e.type, count(*) AS n, min(q.due_at) AS due_at, max(e.created_at) AS newest
  FROM (SELECT event_id, due_at FROM outbox.queue ORDER BY due_at LIMIT ${countedTo}) q
  CROSS JOIN LATERAL (SELECT e.type, e.created_at FROM outbox.events e WHERE e.bucket = outbox.bucket(q.event_id) AND e.id = q.event_id OFFSET 0) e GROUP BY 1`);

const scheduledSql = byType(`SELECT s.type, count(*) AS n, min(s.due_at) AS due_at, max(s.created_at) AS newest
  FROM (SELECT type, due_at, created_at FROM outbox.scheduled ORDER BY due_at LIMIT ${countedTo}) s GROUP BY 1`);

/** Under each of the names that a durable has had. The relay's letters are nobody's. */
const lettersSql = `
SELECT n.id AS dn, 'discarded' AS state, least(count(*), ${countedTo})::int AS n, ${milliseconds('min(l.dead_at)')} AS oldest_ms
FROM (SELECT id::int AS id, formerly || name AS names FROM outbox.durables UNION ALL SELECT -1, ARRAY['#relay']) n CROSS JOIN LATERAL unnest(n.names) u(name)
CROSS JOIN LATERAL (SELECT l.dead_at FROM outbox.dead_letters l WHERE l.durable = u.name AND l.resolved_at IS NULL
  AND ($1::text IS NULL OR l.type LIKE $1::text) ORDER BY l.dead_at LIMIT ${countedTo}) l GROUP BY n.id`;

/**
 * The marks of the last minute. No index has them in the order of time: they are in the order of ids, and whoever works
 * off a backlog marks old ones. But a day's table only grows, so the newest stand at its end, and the last pages say
 * whether it grew lately. The marks of failed attempts, which are none any more, leave holes that are filled: a few new
 * ones are missed. A scalar subquery, because a volatile function is no bound of a scan by place: all was read.
 */
const lastPages = (bucket: number, pages: number): string =>
  `h.ctid >= (SELECT ('(' || greatest(pg_relation_size('outbox.handled_${bucket}') / current_setting('block_size')::int - ${pages}, 0) || ',0)')::tid)
    AND h.started_at > statement_timestamp() - interval '1 minute'`;
const tail = (bucket: number): string =>
  `SELECT h.event_id, h.durable, h.verdict, h.started_at FROM outbox.handled_${bucket} h WHERE ${lastPages(bucket, newestPages)}
    AND (SELECT true FROM outbox.handled_${bucket} h WHERE ${lastPages(bucket, 2)} LIMIT 1)`;

const marksSql = `
WITH t AS MATERIALIZED (${Array.from({ length: 10 }, (_, bucket) => tail(bucket)).join('\n  UNION ALL ')}),
o AS MATERIALIZED (SELECT CASE WHEN count(*) < ${newestMarks} THEN 60000 ELSE greatest(${milliseconds('statement_timestamp() - min(started_at)')}, 1) END AS ms FROM t)
SELECT t.durable::int AS dn, (count(*) FILTER (WHERE verdict = 'd'))::int AS completed, (count(*) FILTER (WHERE verdict = 'x'))::int AS discarded,
  (count(*) FILTER (WHERE verdict = 'c'))::int AS cancelled, (SELECT ms FROM o) AS over_ms
FROM t WHERE ${ofType('t.event_id')} GROUP BY 1`;

const placesSql = `
SELECT 'queue' AS place, count(*)::int AS waiting, ${milliseconds('min(due_at) FILTER (WHERE due_at <= statement_timestamp())')} AS first_ms
FROM (SELECT event_id, due_at FROM outbox.queue ORDER BY due_at ${limit}) q WHERE ${ofType('q.event_id')}
UNION ALL SELECT 'scheduled', count(*)::int, ${milliseconds('min(due_at)')} FROM (SELECT due_at FROM outbox.scheduled
  WHERE $1::text IS NULL OR type LIKE $1::text ORDER BY due_at LIMIT ${countedTo}) s`;

const workersSql = `
SELECT id AS number, coalesce(app, '') AS app, coalesce((in_flight ->> 'running')::int, 0) AS running, ${milliseconds('seen_at')} AS seen_ms
FROM outbox.workers WHERE gone_at IS NULL ORDER BY id`;

const countSql = {
  ready: readySql,
  parked: parkedSql,
  running: runningSql,
  leased: leasedSql,
  messages: messagesSql,
  queued: queuedSql,
  scheduled: scheduledSql,
  letters: lettersSql,
};
