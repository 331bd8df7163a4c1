import {
  meant,
  milliseconds,
  open,
  refused,
  rowless,
  runningMessages,
  runningRows,
  unverified,
  unverifiedType,
} from './inspect-sql.js';
import { queuedOf } from './where-queued.js';
import { inSchema, type Statement, statement } from './wire/statement.js';

/** One delivery, as the sources of a list tell it. */
export interface ListedRow {
  readonly event_id: string;
  /** The durable's number: the order within an event. 0: for all durables; -1: the relay. */
  readonly dn: number;
  readonly durable: string | null;
  readonly state: string;
  readonly attempts: number;
  readonly due_ms: number | null;
  readonly since_ms: number | null;
  readonly worker: string | null;
  readonly error: string | null;
  readonly pause: number | null;
  readonly type: string;
  readonly tenant_id: string | null;
  readonly subject: string | null;
  readonly published_ms: number;
}

/** What a source found among the rows that it looked at. */
export interface LookedRow {
  readonly looked: number;
  /** The last place that was looked at: event id and durable. */
  readonly last: readonly [string, number] | null;
  readonly found: readonly ListedRow[];
}

/** Where deliveries are listed from; one that moves on goes down this list. */
export const listSources = [
  'scheduled',
  'queue',
  'messages',
  'rows',
  'runningMessages',
  'runningRows',
  'completed',
  'ended',
  'letters',
] as const;
export type ListSource = (typeof listSources)[number];

/** Below every durable's number: an event that was looked at with all its deliveries. */
const wholeEvent = -32_768;

/**
 * The lists of deliveries, newest event first, each source by an index of its own. A statement looks at so many rows and
 * not more, however few of them match, and says where it stopped: whoever asks goes on from there.
 *
 * Parameters: below this event id and durable, event id at least, rows at most, rows looked at at most, states, durable,
 * matcher, tenant, text of the error, published at or after, published before; of the statements in `of`, event ids.
 */
export class InspectListTable {
  readonly below: Readonly<Record<ListSource, Statement<LookedRow>>>;
  /** The same among given events. */
  readonly of: Readonly<Record<ListSource, Statement<LookedRow>>>;
  /** Ids of events, newest first. Parameters: subject, at or below this id, at least this id, how many. */
  readonly bySubject;

  constructor(schema: string) {
    const all = (name: string, among: Among): Readonly<Record<ListSource, Statement<LookedRow>>> =>
      Object.fromEntries(
        listSources.map((source) => [
          source,
          statement<LookedRow>(`list_${source}_${name}`, inSchema(schema, listSql(sources(among)[source]))),
        ]),
      ) as Record<ListSource, Statement<LookedRow>>;
    this.below = all('below', (id) => `${id} <= $1::uuid AND ${id} >= $3::uuid`);
    this.of = all('of', (id) => `${id} = ANY ($13::uuid[]) AND ${id} <= $1::uuid AND ${id} >= $3::uuid`);
    this.bySubject = statement<{ id: string }>('list_by_subject', inSchema(schema, bySubjectSql));
  }
}

type Among = (id: string) => string;
interface Source {
  readonly from: string;
  readonly rows: string;
}

const numberOf = (name: string): string =>
  `CASE WHEN ${name} = '#relay' THEN -1 ELSE (SELECT i.id::int FROM outbox.durables i WHERE i.name = ${name} OR ${name} = ANY (i.formerly) LIMIT 1) END`;

const listSql = ({ from, rows }: Source): string => `
WITH wanted AS MATERIALIZED (SELECT ${numberOf('$7::text')} AS dn), c AS MATERIALIZED (${from}),
r AS MATERIALIZED (SELECT * FROM (${rows}) x WHERE x.state = ANY ($6::text[]) AND $5::int > 0 AND (x.event_id, x.dn) < ($1::uuid, $2::int)
    AND ($7::text IS NULL OR x.dn = (SELECT dn FROM wanted)) AND ($10::text IS NULL OR strpos(lower(x.error), lower($10::text)) > 0)
  ORDER BY x.event_id DESC, x.dn DESC LIMIT $4::int)
SELECT (SELECT count(*)::int FROM c) AS looked, (SELECT json_build_array(event_id, dn) FROM c ORDER BY event_id, dn LIMIT 1) AS last,
  (SELECT coalesce(json_agg(r), '[]') FROM r) AS found`;

const fits = (
  event: string,
): string => `($8::text IS NULL OR ${event}.type LIKE $8::text) AND ($9::text IS NULL OR ${event}.tenant_id = $9::text)
  AND ($11::timestamptz IS NULL OR ${event}.created_at >= $11::timestamptz) AND ($12::timestamptz IS NULL OR ${event}.created_at < $12::timestamptz)`;

const eventOf = (id: string): string =>
  `CROSS JOIN LATERAL (SELECT e.type, e.tenant_id, e.subject, e.created_at FROM outbox.events e WHERE e.bucket = outbox.bucket(${id}) AND e.id = ${id} AND ${fits('e')} OFFSET 0) e`;

interface Columns {
  readonly durable?: string;
  readonly dn?: string;
  readonly state: string;
  readonly attempts?: string;
  readonly due?: string;
  readonly since?: string;
  readonly worker?: string;
  readonly error?: string;
  readonly pause?: string;
  readonly event?: string;
}

const columns = (c: Columns): string => {
  const event = c.event ?? 'e';
  return `SELECT c.event_id, ${c.dn ?? 'n.id::int'} AS dn, ${c.durable ?? 'n.name'} AS durable, ${c.state} AS state, ${c.attempts ?? '0'} AS attempts,
  ${milliseconds(c.due ?? 'NULL::timestamptz')} AS due_ms, ${milliseconds(c.since ?? 'NULL::timestamptz')} AS since_ms, ${c.worker ?? 'NULL'} AS worker,
  ${c.error ?? 'NULL::text'} AS error, ${c.pause ?? 'NULL::int'} AS pause, ${event}.type, ${event}.tenant_id, ${event}.subject, ${milliseconds(`${event}.created_at`)} AS published_ms
FROM c`;
};

const rowColumns = `d.event_id, d.durable::int AS dn, d.due_at, d.attempt, d.interruptions, d.snoozes, d.lease, d.last_error`;
/** A row of `deliveries`: it waits, or it runs. */
const rowsOf = `${columns({
  state: `CASE WHEN g.event_id IS NOT NULL THEN 'running' WHEN c.attempt > 0 OR c.snoozes > 0 OR c.interruptions > 0 THEN 'retryable' ELSE 'pending' END`,
  attempts: 'c.attempt',
  due: 'c.due_at',
  since: 'g.started_at',
  worker: 'g.app',
  error: 'c.last_error',
  pause: 'CASE WHEN c.lease < 0 THEN -c.lease END',
})} JOIN outbox.durables n ON n.id = c.dn LEFT JOIN ${runningRows} g ON g.event_id = c.event_id AND g.durable = c.dn AND g.worker = c.lease
${eventOf('c.event_id')} WHERE ${open('c.event_id', 'c.dn')}`;

/** An event that has left the queue and has neither row nor verdict. */
const messagesOf = `${columns({
  state: `CASE WHEN g.event_id IS NOT NULL THEN 'running' ELSE 'pending' END`,
  due: 'c.created_at',
  since: 'g.started_at',
  worker: 'g.app',
  event: 'c',
})} JOIN ${unverified} n ON c.event_id >= n.first AND ${meant('n.id', 'c', unverifiedType('c.event_id', 'n'))}
LEFT JOIN ${runningMessages} g ON g.event_id = c.event_id AND g.durable = n.id
WHERE ${fits('c')} AND ${open('c.event_id', 'n.id')} AND ${rowless('c.event_id', 'n.id')} AND (SELECT true FROM ${queuedOf('c.event_id')} w LIMIT 1) IS NULL AND NOT ${refused('c.event_id')}`;

const eventColumns = `e.id AS event_id, ${wholeEvent} AS dn, e.type, e.tenant_id, e.subject, e.created_at`;
const due = 'e.id < outbox.uuid7_floor(statement_timestamp())';

const marksOf = `${columns({
  dn: 'c.dn',
  state: `CASE c.verdict WHEN 'd' THEN 'completed' WHEN 'x' THEN 'discarded' ELSE 'cancelled' END`,
  attempts: 'c.attempts',
  since: 'c.started_at',
  worker: 'coalesce(w.app, c.worker::text)',
  error: `(SELECT o.error FROM outbox.dead_letters o WHERE c.verdict = 'x' AND o.event_id = c.event_id AND (o.durable = n.name OR o.durable = ANY (n.formerly)) ORDER BY o.dead_at DESC LIMIT 1)`,
})} LEFT JOIN outbox.durables n ON n.id = c.dn LEFT JOIN outbox.workers w ON w.id = c.worker ${eventOf('c.event_id')}
WHERE c.dn <> 0 OR (SELECT true FROM outbox.handled o WHERE o.bucket = outbox.bucket(c.event_id) AND o.event_id = c.event_id AND o.durable <> 0 LIMIT 1) IS NULL`;

const marks = (among: string, verdict: string): string =>
  `SELECT h.event_id, h.durable::int AS dn, h.verdict, h.attempts, h.worker, h.started_at FROM outbox.handled h
  WHERE ${among} AND (h.event_id, h.durable) < ($1::uuid, $2::int) AND h.verdict ${verdict} AND ($7::text IS NULL OR h.durable = (SELECT dn FROM wanted))
  ORDER BY h.event_id DESC, h.durable DESC LIMIT $5::int`;

/** Letters of events whose marks are forgotten, and the relay's, which have none. */
const lettersOf = `${columns({
  durable: 'coalesce(i.name, c.name)',
  dn: `CASE WHEN c.name = '#relay' THEN -1 ELSE coalesce(i.id, -2) END`,
  state: `'discarded'`,
  attempts: 'c.attempts',
  since: 'c.dead_at',
  error: 'c.error',
  event: 'c',
})} LEFT JOIN outbox.durables i ON i.name = c.name OR c.name = ANY (i.formerly) WHERE ${fits('c')} AND CASE WHEN c.name = '#relay' THEN
  (c.resolved_at IS NULL OR c.resolution IS DISTINCT FROM 'retried' AND (SELECT true FROM outbox.events e WHERE e.bucket = outbox.bucket(c.event_id) AND e.id = c.event_id LIMIT 1))
    AND (SELECT true FROM outbox.handled h WHERE h.bucket = outbox.bucket(c.event_id) AND h.event_id = c.event_id AND h.durable = 0 LIMIT 1) IS NULL
  ELSE (SELECT true FROM outbox.handled h WHERE h.bucket = outbox.bucket(c.event_id) AND h.event_id = c.event_id AND h.durable = i.id LIMIT 1) IS NULL AND ${rowless('c.event_id', 'i.id')} END`;

function sources(among: Among): Readonly<Record<ListSource, Source>> {
  const given = among('u.id').includes('$13');
  return {
    scheduled: {
      from: `SELECT e.due_at, ${eventColumns} FROM outbox.scheduled e WHERE ${among('e.id')} ORDER BY e.id DESC LIMIT $5::int`,
      rows: `${columns({ state: `'pending'`, due: 'c.due_at', event: 'c' })} JOIN outbox.durables n ON n.state = 'active' AND ${meant('n.id', 'c')} WHERE ${fits('c')}`,
    },
    queue: {
      from: given
        ? `SELECT q.event_id, ${wholeEvent} AS dn, q.due_at, q.last_error FROM unnest($13::uuid[]) u(id) CROSS JOIN LATERAL ${queuedOf('u.id')} q WHERE ${among('u.id')}`
        : `SELECT q.event_id, ${wholeEvent} AS dn, q.due_at, q.last_error FROM outbox.queue q WHERE ${among('q.event_id')} ORDER BY q.event_id DESC LIMIT $5::int`,
      rows: `${columns({ state: `'pending'`, due: 'c.due_at', error: 'c.last_error' })} ${eventOf('c.event_id')} JOIN outbox.durables n ON n.state = 'active' AND ${meant('n.id', 'e')}
WHERE ${open('c.event_id', 'n.id')} AND ${rowless('c.event_id', 'n.id')}`,
    },
    messages: {
      from: `SELECT e.* FROM (SELECT first FROM ${unverified} v WHERE first IS NOT NULL ORDER BY first LIMIT 1) v CROSS JOIN LATERAL (SELECT ${eventColumns} FROM outbox.events e
  WHERE ${among('e.id')} AND e.id >= v.first AND ${due} ORDER BY e.id DESC LIMIT $5::int) e`,
      rows: messagesOf,
    },
    rows: {
      from: `SELECT ${rowColumns} FROM outbox.deliveries d WHERE ${among('d.event_id')} AND (d.event_id, d.durable) < ($1::uuid, $2::int)
  AND ($7::text IS NULL OR d.durable = (SELECT dn FROM wanted)) ORDER BY d.event_id DESC, d.durable DESC LIMIT $5::int`,
      rows: rowsOf,
    },
    runningMessages: {
      from: `SELECT DISTINCT ${eventColumns} FROM ${runningMessages} g CROSS JOIN LATERAL (SELECT o.id, o.type, o.tenant_id, o.subject, o.created_at
  FROM outbox.events o WHERE o.bucket = outbox.bucket(g.event_id) AND o.id = g.event_id OFFSET 0) e WHERE ${among('e.id')}`,
      rows: messagesOf,
    },
    runningRows: {
      from: `SELECT ${rowColumns} FROM ${runningRows} g JOIN outbox.deliveries d ON d.event_id = g.event_id AND d.durable = g.durable AND d.lease = g.worker WHERE ${among('d.event_id')}`,
      rows: rowsOf,
    },
    completed: { from: marks(among('h.event_id'), `= 'd'`), rows: marksOf },
    ended: { from: marks(among('h.event_id'), `<> 'd'`), rows: marksOf },
    letters: {
      from: `SELECT l.event_id, ${wholeEvent} AS dn, l.durable AS name, l.attempts, l.dead_at, l.error, l.resolved_at, l.resolution, l.type, l.tenant_id, l.subject, l.created_at
  FROM outbox.dead_letters l WHERE (l.resolved_at IS NULL OR l.durable = '#relay') AND ${among('l.event_id')} ORDER BY l.event_id DESC FETCH FIRST ($5::int) ROWS WITH TIES`,
      rows: lettersOf,
    },
  };
}

const newestOf = (id: string, from: string): string =>
  `(SELECT ${id} AS id FROM ${from} AND ${id} <= $2::uuid AND ${id} >= $3::uuid ORDER BY ${id} DESC LIMIT $4::int)`;

/** A letter may be of an event that is there as well; a subject with a million events is read no further than a page. */
const bySubjectSql = `
SELECT DISTINCT id FROM (${newestOf('e.id', 'outbox.events e WHERE e.subject = $1::text')} UNION ALL ${newestOf('s.id', 'outbox.scheduled s WHERE s.subject = $1::text')}
  UNION ALL (SELECT DISTINCT l.event_id FROM outbox.dead_letters l WHERE l.subject = $1::text AND l.resolved_at IS NULL AND l.event_id <= $2::uuid AND l.event_id >= $3::uuid
    ORDER BY l.event_id DESC LIMIT $4::int)) x ORDER BY id DESC LIMIT $4::int`;
