import { aloneFrom } from './deliveries.table.js';
import { durablePaused, type PauseRow, pausedSql } from './pauses.table.js';
import type { Privilege } from './schema/privileges.js';
import type { LockKeys } from './schema/schema-name.js';
import { type Bound, inSchema, type Statement, statement } from './wire/statement.js';

/** Counts stop here: what waits may be millions of rows, and beyond this nobody asks how many. */
export const countedTo = 10_001;

export interface RelayRow {
  /** Up to `countedTo`. */
  readonly waiting: number;
  readonly lag_ms: number | null;
}

export interface WaitingRow {
  readonly durable: string;
  /** Up to `countedTo`. */
  readonly waiting: number;
  readonly oldest_ms: number;
  /** Since a worker that handles it was last seen; null when none ever was. */
  readonly unseen_ms: number | null;
  /** What is due waits because somebody said so. */
  readonly paused: boolean;
}

/** Handlers of one durable whose attempts have failed and that run on. */
export interface OverrunRow {
  readonly durable: string;
  readonly handlers: number;
  /** Since the first of them failed. */
  readonly longest_ms: number;
  /** Where they run. */
  readonly apps: string;
}

export interface OpenLettersRow {
  /** Up to `countedTo`. */
  readonly open: number;
  /** Milliseconds since 1970. */
  readonly oldest: number | null;
}

export interface JobStateRow {
  readonly job: string;
  readonly running: boolean;
  /** Milliseconds since 1970. */
  readonly slot: number | null;
  readonly attempt: number;
  readonly worker: number | null;
  readonly app: string | null;
  readonly for_ms: number | null;
  readonly past_deadline_ms: number | null;
  readonly past_next_slot_ms: number | null;
  /** When its last run lost its lock, if that was lately; milliseconds since 1970. */
  readonly lost: number | null;
  /** When its last slot ended as failed, with no attempt left; milliseconds since 1970. */
  readonly failed: number | null;
  /** The first line of what it failed with. */
  readonly error: string | null;
}

export interface HolderRow {
  readonly kind: 'session' | 'standby' | 'prepared transaction' | 'replication slot';
  readonly pid: number | null;
  readonly application: string | null;
  readonly role: string | null;
  readonly state: string | null;
  readonly name: string | null;
  readonly transactions: number;
  readonly for_ms: number | null;
}

/** What health asks, each part by itself: a role may not read all of them, and one may fail without the others. */
export interface HealthRows {
  readonly relay: RelayRow;
  readonly deliveries: WaitingRow;
  readonly deadLetters: OpenLettersRow;
  readonly jobs: JobStateRow;
  readonly vacuum: HolderRow;
  readonly lock: { readonly held: boolean };
  readonly pauses: PauseRow;
  readonly overruns: OverrunRow;
}

export type HealthPart = keyof HealthRows;

/** What each part reads. The views of the server are open to every role. */
const reads: Readonly<Record<HealthPart, readonly string[]>> = {
  relay: ['queue', 'scheduled'],
  deliveries: ['deliveries', 'durables', 'pauses'],
  deadLetters: ['dead_letters'],
  jobs: ['job_state', 'workers'],
  vacuum: [],
  lock: [],
  pauses: ['pauses', 'durables'],
  overruns: ['workers', 'durables', 'attempts'],
};

export const healthParts = Object.keys(reads) as readonly HealthPart[];

/** What a role must be able to read for each of `healthParts`, in this order. */
export const healthNeeds: readonly Privilege[] = healthParts.map((part) => ({
  kind: 'TABLE',
  names: reads[part],
  privileges: ['SELECT'],
}));

/**
 * The figures of health. Its statements share a connection with the loops, so each of them is held to what an index
 * answers in a moment, and to `limit`.
 */
export class HealthTable {
  /**
   * Sent in front: an index answers at once, and the loops wait behind it. Four parts that wait for locks are still
   * found within health's five seconds, one after the other. Ends with the message.
   */
  readonly limit = statement('health_limit', "SELECT set_config('statement_timeout', '800', true)")();
  private readonly relay: Statement<RelayRow>;
  private readonly deliveries: Statement<WaitingRow>;
  private readonly deadLetters: Statement<OpenLettersRow>;
  private readonly jobs: Statement<JobStateRow>;
  private readonly vacuum = statement<HolderRow>('health_vacuum', vacuumSql);
  private readonly lock: Statement<{ held: boolean }>;
  private readonly pauses: Statement<PauseRow>;
  private readonly overruns: Statement<OverrunRow>;

  constructor(schema: string, keys: LockKeys) {
    this.relay = statement('health_relay', inSchema(schema, relaySql));
    this.deliveries = statement('health_deliveries', inSchema(schema, deliveriesSql));
    this.deadLetters = statement('health_dead_letters', inSchema(schema, deadLettersSql));
    this.jobs = statement('health_jobs', inSchema(schema, jobsSql));
    this.pauses = statement('health_pauses', inSchema(schema, pausedSql));
    this.overruns = statement('health_overruns', inSchema(schema, overrunsSql));
    this.lock = statement('health_lock', lockSql.replaceAll('{worker}', `${keys.worker}`));
  }

  /** Every part, for a process with this worker number. */
  ask(worker: number | undefined): { readonly [P in HealthPart]: Bound<HealthRows[P]> } {
    return {
      relay: this.relay(),
      deliveries: this.deliveries(),
      deadLetters: this.deadLetters(),
      jobs: this.jobs(),
      vacuum: this.vacuum(),
      lock: this.lock(worker ?? null),
      pauses: this.pauses(),
      overruns: this.overruns(),
    };
  }
}

const milliseconds = (span: string): string => `floor(extract(epoch FROM ${span}) * 1000)::bigint`;

/**
 * Both tables by their index on the due time, from its low end: the oldest is one look, the count ends at its limit.
 * `scheduled` belongs to it, since what is due there is the relay's to move.
 */
const relaySql = `
WITH q AS MATERIALIZED (SELECT due_at FROM outbox.queue WHERE due_at <= statement_timestamp() ORDER BY due_at LIMIT ${countedTo}),
s AS MATERIALIZED (SELECT due_at FROM outbox.scheduled WHERE due_at <= statement_timestamp() ORDER BY due_at LIMIT ${countedTo}),
w AS (SELECT due_at FROM q UNION ALL SELECT due_at FROM s)
SELECT least(count(*), ${countedTo})::int AS waiting, ${milliseconds('statement_timestamp() - min(due_at)')} AS lag_ms FROM w`;

/** As the view `deliveries_running` says it, which a worker's role may not read. */
const runningNow = `(SELECT (x.d ->> 0)::uuid AS event_id, (x.d ->> 1)::smallint AS durable, w.id AS worker, w.app, w.seen_at - (x.d ->> 2)::bigint * interval '1 millisecond' AS started_at
  FROM outbox.workers w CROSS JOIN LATERAL jsonb_array_elements(w.in_flight -> 'deliveries') x(d) WHERE w.gone_at IS NULL AND w.seen_at > statement_timestamp() - interval '10 seconds')`;

/** What is recorded as failed while its worker says that it runs: its time was up, and it ignores its signal. */
const overrunsSql = `
SELECT n.name AS durable, count(*)::int AS handlers, ${milliseconds('statement_timestamp() - min(f.at)')} AS longest_ms,
  string_agg(DISTINCT coalesce(r.app, 'worker ' || r.worker), ', ') AS apps
FROM ${runningNow} r JOIN outbox.durables n ON n.id = r.durable
CROSS JOIN LATERAL (SELECT max(a.failed_at) AS at FROM outbox.attempts a
  WHERE a.bucket = outbox.bucket(r.event_id) AND a.event_id = r.event_id AND a.durable = r.durable AND a.failed_at > r.started_at) f
WHERE f.at IS NOT NULL GROUP BY n.name ORDER BY n.name`;

const ready = (interruptions: string): string =>
  `SELECT due_at FROM outbox.deliveries WHERE durable = n.id AND lease IS NULL AND interruptions ${interruptions}
     AND due_at <= statement_timestamp() ORDER BY due_at LIMIT ${countedTo}`;

/**
 * What is due and held by nobody, durable by durable, because both indexes begin with it: without the LATERAL one
 * durable with a million rows would be counted to its end to find the others. What a worker holds is in no index, and
 * is not asked for.
 */
const deliveriesSql = `
SELECT n.name AS durable, least(w.waiting, ${countedTo})::int AS waiting, ${milliseconds('statement_timestamp() - w.oldest')} AS oldest_ms,
  ${milliseconds('statement_timestamp() - n.seen_at')} AS unseen_ms, ${durablePaused('n.id')} AS paused
FROM outbox.durables n CROSS JOIN LATERAL (SELECT count(*) AS waiting, min(due_at) AS oldest
  FROM ((${ready(`< ${aloneFrom}`)}) UNION ALL (${ready(`>= ${aloneFrom}`)})) d) w
WHERE n.state = 'active' AND w.waiting > 0 ORDER BY w.oldest, n.name`;

/** By the index of open letters, oldest first. */
const deadLettersSql = `
SELECT count(*)::int AS open, ${milliseconds('min(dead_at)')} AS oldest
FROM (SELECT dead_at FROM outbox.dead_letters WHERE resolved_at IS NULL ORDER BY dead_at, event_id, durable LIMIT ${countedTo}) d`;

/** One row a job, and few of them. One whose last run ended after it began only waits to be taken up again. */
const jobsSql = `
SELECT j.*, w.app FROM (SELECT s.job, s.attempt, s.worker, ${milliseconds('s.running_slot')} AS slot,
    s.running_slot IS NOT NULL AND s.retry_at IS NULL AND NOT coalesce(s.finished_at >= s.started_at, false) AS running,
    ${milliseconds('statement_timestamp() - s.started_at')} AS for_ms,
    ${milliseconds('statement_timestamp() - s.deadline')} AS past_deadline_ms,
    ${milliseconds('statement_timestamp() - s.next_slot')} AS past_next_slot_ms,
    CASE WHEN s.outcome = 'lock lost' AND s.finished_at > statement_timestamp() - interval '1 hour' THEN ${milliseconds('s.finished_at')} END AS lost,
    CASE WHEN s.outcome IN ('failed', 'interrupted') AND s.running_slot IS NULL THEN ${milliseconds('s.finished_at')} END AS failed,
    left(split_part(s.last_error, E'\\n', 1), 300) AS error
  FROM outbox.job_state s) j LEFT JOIN outbox.workers w ON w.id = j.worker
WHERE j.running OR j.lost IS NOT NULL OR j.failed IS NOT NULL ORDER BY j.for_ms DESC, j.job`;

/**
 * Who keeps dead rows of this database from being removed: the oldest of all snapshots, by transactions and not by
 * time, since that is what vacuum goes by. Sessions in other databases do not count; senders to standbys, which are in
 * none, do, with the snapshot of a query there; a running VACUUM does not, nor does the server's own autovacuum, which
 * bears no role. Of a slot's two horizons `catalog_xmin` keeps
 * no rows of ours. A running transaction is in the snapshot of everybody who came after it, and all of them look as old
 * as it is: the one whose own number it is goes first.
 */
const vacuumSql = `
SELECT kind, pid, application, role, state, name, transactions, ${milliseconds('statement_timestamp() - since')} AS for_ms FROM (
  SELECT CASE WHEN a.datid IS NULL THEN 'standby' ELSE 'session' END AS kind, a.pid, a.application_name AS application, a.usename::text AS role, a.state, NULL::text AS name,
      greatest(age(a.backend_xid), age(a.backend_xmin)) AS transactions, a.xact_start AS since,
      coalesce(age(a.backend_xid) >= age(a.backend_xmin), a.backend_xid IS NOT NULL) AS own
    FROM pg_stat_activity a WHERE (a.datname = current_database() AND a.usesysid IS NOT NULL OR a.datid IS NULL) AND a.pid <> pg_backend_pid() AND a.leader_pid IS NULL
      AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL) AND a.pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v)
  UNION ALL SELECT 'prepared transaction', NULL, NULL, p.owner::text, NULL, p.gid, age(p.transaction), p.prepared, true
    FROM pg_prepared_xacts p WHERE p.database = current_database()
  UNION ALL SELECT 'replication slot', s.active_pid, NULL, NULL, NULL, s.slot_name::text, age(s.xmin), NULL, true
    FROM pg_replication_slots s WHERE s.xmin IS NOT NULL) h
ORDER BY transactions DESC, own DESC, since LIMIT 1`;

/**
 * Whether somebody still holds the lock of this number. Shared, as whoever looks for live workers does; should nobody
 * hold it, then this does until its message ends, and a sweep comes by a second later. Parameters: worker number.
 */
const lockSql = 'SELECT NOT pg_try_advisory_xact_lock_shared({worker}, $1::int) AS held';
