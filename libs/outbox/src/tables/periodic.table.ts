import type { JobOutcome } from './jobs.table.js';
import type { LockKeys } from './schema/schema-name.js';
import { type Bound, inSchema, type Statement, statement } from './wire/statement.js';

/** A pause in the columns of another row. Moments are milliseconds since 1970 here as everywhere. */
export interface PauseColumns {
  /** null: there is none. */
  readonly pause: number | null;
  readonly reason: string | null;
  readonly paused_by: string | null;
  readonly since: number | null;
  readonly until: number | null;
}

/** A job as `job_state` has it, with the worker that has it and the pause it is under. */
export interface PeriodicRow extends PauseColumns {
  readonly job: string;
  readonly schedule: string;
  readonly last_slot: number;
  readonly running_slot: number | null;
  readonly attempt: number;
  readonly worker: string | null;
  readonly started_at: number | null;
  readonly finished_at: number | null;
  readonly retry_at: number | null;
  readonly next_slot: number | null;
  readonly outcome: JobOutcome | null;
  readonly error: string | null;
  readonly asked_at: number | null;
  readonly asked_by: string | null;
  readonly seen_at: number;
  readonly now: number;
}

export interface PeriodicRunRow {
  readonly job: string;
  readonly slot: number;
  readonly attempt: number;
  readonly started_at: number;
  readonly finished_at: number | null;
  readonly outcome: JobOutcome | null;
  readonly worker: string | null;
  readonly error: string | null;
}

/** A session that holds the lock of a job. Of a session of another role the server tells nothing but its pid. */
export interface JobLockRow {
  /** The second half of the lock's key, without a sign. */
  readonly key: number;
  readonly pid: number;
  readonly application: string | null;
  readonly address: string | null;
  readonly since: number | null;
}

/** What came of asking: a slot, or the pause that stands against it; no row: there is no such job. */
export interface AskedRow extends PauseColumns {
  readonly slot: number | null;
}

/** The operator's side of periodic jobs: what there is of each of them, and one more run of one. */
export class PeriodicTable {
  readonly states: Statement<PeriodicRow>;
  /** The last 10 attempts of each job, newest slot first. */
  readonly runs: Statement<PeriodicRunRow>;
  readonly locks: Statement<JobLockRow>;
  readonly names: Statement<{ job: string }>;
  private readonly askStatement: Statement<AskedRow>;

  constructor(schema: string, keys: LockKeys) {
    this.states = statement('periodic_states', inSchema(schema, statesSql));
    this.runs = statement('periodic_runs', inSchema(schema, runsSql));
    this.locks = statement('periodic_locks', locksSql.replaceAll('{job}', `${keys.job >>> 0}`));
    this.names = statement('periodic_names', inSchema(schema, 'SELECT job FROM outbox.job_state ORDER BY job'));
    this.askStatement = statement('periodic_ask', inSchema(schema, askSql));
  }

  ask(job: string, who: string, why: string | null): Bound<AskedRow> {
    return this.askStatement(job, who, why);
  }
}

const ms = (column: string): string => `floor(extract(epoch FROM ${column}) * 1000)::bigint`;
const pause = `p.id AS pause, p.reason, p.paused_by, ${ms('p.since')} AS since, ${ms('p.until')} AS until`;

const statesSql = `
SELECT s.job, s.schedule, ${ms('s.last_slot')} AS last_slot, ${ms('s.running_slot')} AS running_slot, s.attempt::int, coalesce(w.app, s.worker::text) AS worker,
  ${ms('s.started_at')} AS started_at, ${ms('s.finished_at')} AS finished_at, ${ms('s.retry_at')} AS retry_at, ${ms('s.next_slot')} AS next_slot,
  s.outcome, s.last_error AS error, ${ms('s.asked_at')} AS asked_at, s.asked_by, ${ms('s.seen_at')} AS seen_at, ${ms('clock_timestamp()')} AS now, ${pause}
FROM outbox.job_state s LEFT JOIN outbox.workers w ON w.id = s.worker LEFT JOIN outbox.pauses_active p ON p.kind = 'job' AND p.name = s.job ORDER BY s.job`;

const runsSql = `
SELECT r.job, ${ms('r.slot')} AS slot, r.attempt::int, ${ms('r.started_at')} AS started_at, ${ms('r.finished_at')} AS finished_at, r.outcome,
  coalesce(w.app, r.worker::text) AS worker, r.error
FROM outbox.job_state s CROSS JOIN LATERAL (SELECT * FROM outbox.job_runs o WHERE o.job = s.job ORDER BY o.slot DESC, o.attempt DESC LIMIT 10) r
LEFT JOIN outbox.workers w ON w.id = r.worker ORDER BY r.job, r.slot DESC, r.attempt DESC`;

/** Shared ones are of processes that look whether a lock is free. */
const locksSql = `
SELECT l.objid::bigint AS key, l.pid, a.application_name AS application, host(a.client_addr) AS address, ${ms('a.backend_start')} AS since
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.classid = '{job}'::oid AND l.objsubid = 2 AND l.mode = 'ExclusiveLock' AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())`;

/**
 * Who asks while somebody has asked is given the same slot. Slots of schedules are round, as good as all of them, and one
 * that is asked for ends in no zero: two runs under one slot would be one in the history, and to whatever takes the slot
 * for its idempotency key. A slot that waits for its retry goes before it, so that is due now. Parameters: job, who, why.
 */
const askSql = `
WITH p AS MATERIALIZED (SELECT ${pause} FROM outbox.pauses_active p WHERE p.kind = 'job' AND p.name = $1::text),
n AS MATERIALIZED (SELECT t + CASE WHEN extract(milliseconds FROM t)::int % 10 = 0 THEN interval '1 millisecond' ELSE interval '0' END AS slot
  FROM date_trunc('milliseconds', clock_timestamp()) t),
a AS (UPDATE outbox.job_state SET asked_at = coalesce(asked_at, (SELECT slot FROM n)), asked_by = CASE WHEN asked_at IS NULL THEN $2::text ELSE asked_by END,
    retry_at = CASE WHEN retry_at > clock_timestamp() THEN clock_timestamp() ELSE retry_at END
  WHERE job = $1::text AND NOT EXISTS (SELECT 1 FROM p) RETURNING job, asked_at),
w AS (INSERT INTO outbox.audit (who, action, what, why) SELECT $2::text, 'run-job', jsonb_build_object('job', job, 'slot', asked_at), $3::text FROM a)
SELECT ${ms('asked_at')} AS slot, NULL::int AS pause, NULL::text AS reason, NULL::text AS paused_by, NULL::bigint AS since, NULL::bigint AS until FROM a
UNION ALL SELECT NULL, p.* FROM p WHERE EXISTS (SELECT 1 FROM outbox.job_state s WHERE s.job = $1::text)`;
