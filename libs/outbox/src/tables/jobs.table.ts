import { jobPaused } from './pauses.table.js';
import type { LockKeys } from './schema/schema-name.js';
import { type Bound, inSchema, type Statement, statement } from './wire/statement.js';

/** A job as the database has it. Moments are milliseconds since 1970, by the database's clock. */
export interface JobRow {
  readonly job: string;
  readonly schedule: string;
  readonly last_slot: number;
  /** The slot that runs, was left unfinished, or waits for its retry. */
  readonly running_slot: number | null;
  readonly attempt: number;
  /** Since when the failed slot may be tried again; null: it runs, or nobody said how it ended. */
  readonly retry_at: number | null;
  readonly worker: number | null;
  /** Nothing of it begins. */
  readonly paused: boolean;
  /** The slot of one more run that somebody asked for and that has not begun. */
  readonly asked_at: number | null;
  readonly now: number;
}

/** Which attempt at which slot of which job. */
export interface JobAttempt {
  readonly job: string;
  readonly slot: number;
  /** From 1. */
  readonly attempt: number;
}

/** How an attempt ended; the words are those of the column. */
export type JobOutcome = 'done' | 'failed' | 'lock lost' | 'interrupted';

/** What a started attempt leaves in the row beside itself. */
export interface AttemptStart extends JobAttempt {
  readonly worker: number | null;
  /** `undefined`: the job has no time limit. */
  readonly timeoutMs: number | undefined;
  /** Whether it gets a row in `job_runs`. */
  readonly history: boolean;
}

/** `job_state` and `job_runs`: which slot of a job is the last that anybody began, and how it ended. */
export class JobsTable {
  /** Parameters: jobs, their schedules. */
  readonly register: Statement;
  /** Parameters: jobs. */
  readonly look: Statement<JobRow>;
  /** Parameters: the lock key of a job. Session locks are re-entrant: who asks must know that it does not hold it. */
  readonly lock: Statement<{ got: boolean }>;
  /** Parameters: the lock key of a job. */
  readonly unlock: Statement;
  /** Whether nobody holds it; asked with a lock that ends with the statement. Parameters: the lock key of a job. */
  readonly free: Statement<{ free: boolean }>;
  private readonly tickStatement: Statement<{ job: string }>;
  private readonly takeAskedStatement: Statement<{ job: string }>;
  private readonly takeUpStatement: Statement<{ job: string }>;
  private readonly giveUpStatement: Statement<{ job: string }>;
  private readonly finishStatement: Statement<{ job: string }>;
  private readonly againStatement: Statement<{ job: string }>;
  private readonly putBackStatement: Statement<{ job: string }>;
  private readonly noteStatement: Statement;

  constructor(schema: string, keys: LockKeys) {
    const bind = (sql: string): string =>
      inSchema(schema, sql.replaceAll('{worker}', `${keys.worker}`).replaceAll('{job}', `${keys.job}`));
    this.register = statement('jobs_register', bind(registerSql));
    this.look = statement('jobs_look', bind(lookSql));
    this.lock = statement('job_lock', bind('SELECT pg_try_advisory_lock({job}, $1::int) AS got'));
    this.unlock = statement('job_unlock', bind('SELECT pg_advisory_unlock({job}, $1::int)'));
    this.free = statement('job_free', bind('SELECT pg_try_advisory_xact_lock_shared({job}, $1::int) AS free'));
    this.tickStatement = statement('job_tick', bind(tickSql));
    this.takeAskedStatement = statement('job_take_asked', bind(takeAskedSql));
    this.takeUpStatement = statement('job_take_up', bind(takeUpSql));
    this.giveUpStatement = statement('job_give_up', bind(giveUpSql));
    this.finishStatement = statement('job_finish', bind(finishSql));
    this.againStatement = statement('job_again', bind(againSql));
    this.putBackStatement = statement('job_put_back', bind(putBackSql));
    this.noteStatement = statement('job_note', bind(noteSql));
  }

  /**
   * Begins a new slot; a row only if it is nobody else's, is due by the database's clock or was `asked` for, and the
   * schedule is still ours.
   */
  tick(start: AttemptStart, schedule: string, nextSlot: number, asked: boolean): Bound<{ job: string }> {
    const { job, slot, worker, history } = start;
    return this.tickStatement(job, slot, schedule, nextSlot, ...limits(start), worker, yes(history), yes(asked));
  }

  /** One process takes the run of a parallel job that was asked for; no row: another has it. */
  takeAsked(job: string, slot: number, schedule: string): Bound<{ job: string }> {
    return this.takeAskedStatement(job, slot, schedule);
  }

  /** Begins the next attempt at a slot; `failed` says how the one before it ended: with an error, or nobody knows. */
  takeUp(start: AttemptStart, failed: boolean): Bound<{ job: string }> {
    const { job, slot, attempt, worker } = start;
    return this.takeUpStatement(job, slot, attempt - 1, yes(failed), ...limits(start), worker, yes(start.history));
  }

  /** Ends a slot that was left unfinished once too often. Parameters beside it: this worker, for its own leavings. */
  giveUp({ job, slot, attempt }: JobAttempt, worker: number | null, error: string): Bound<{ job: string }> {
    return this.giveUpStatement(job, slot, attempt, worker, error);
  }

  /** The end of a slot. No row: it is somebody else's by now. */
  finish({ job, slot, attempt }: JobAttempt, outcome: JobOutcome, error: string | null): Bound<{ job: string }> {
    return this.finishStatement(job, slot, attempt, outcome, error);
  }

  /**
   * The end of an attempt and not of its slot: there will be another one, after `delay` (an interval) when the attempt
   * failed, as soon as somebody finds it otherwise (null). One that is not `charged` does not count.
   */
  again(
    { job, slot, attempt }: JobAttempt,
    outcome: JobOutcome,
    error: string | null,
    delay: string | null,
    charged: boolean,
  ): Bound<{ job: string }> {
    return this.againStatement(job, slot, attempt, outcome, error, delay, yes(charged));
  }

  /** Undoes the begin of an attempt that this worker holds and does not run. */
  putBack({ job, slot, attempt }: JobAttempt, worker: number): Bound<{ job: string }> {
    return this.putBackStatement(job, slot, attempt, worker);
  }

  /** The last state of a job that runs everywhere. Parameters beside it: how long the run took, as an interval. */
  note(job: string, slot: number, outcome: JobOutcome, error: string | null, took: string): Bound {
    return this.noteStatement(job, slot, outcome, error, took);
  }
}

const yes = (value: boolean): string => (value ? 't' : 'f');
const limits = ({ timeoutMs }: AttemptStart): [string | null] => [
  timeoutMs === undefined ? null : `${timeoutMs / 1_000} seconds`,
];
const ms = (column: string): string => `floor(extract(epoch FROM ${column}) * 1000)::bigint`;
const instant = (parameter: string): string =>
  `(timestamptz 'epoch' + ${parameter}::bigint * interval '1 millisecond')`;
/** Slots travel in milliseconds; who writes `asked_at` by hand may write more. */
const askedFor = (slot: string): string => `date_trunc('milliseconds', asked_at) = ${instant(slot)}`;

/**
 * A schedule is taken over by a process that brings one the row has never had, and by one whose schedule was replaced but
 * whose replacement nobody has had for a minute (a rollback). Whoever else has another schedule is an older version, and
 * goes quiet. A job that is new, or has a new schedule, catches up nothing: its slots begin now. In the order of names:
 * two processes that boot at once would deadlock. The row is written at most every 20 s.
 */
const registerSql = `
INSERT INTO outbox.job_state AS s (job, schedule) SELECT j, w FROM unnest($1::text[], $2::text[]) u(j, w) ORDER BY j
ON CONFLICT (job) DO UPDATE SET schedule = excluded.schedule, seen_at = clock_timestamp(),
  former = CASE WHEN s.schedule = excluded.schedule THEN s.former ELSE (array_prepend(s.schedule, array_remove(s.former, excluded.schedule)))[1:20] END,
  last_slot = CASE WHEN s.schedule = excluded.schedule THEN s.last_slot ELSE greatest(s.last_slot, clock_timestamp()) END
WHERE CASE WHEN s.schedule = excluded.schedule THEN s.seen_at < clock_timestamp() - interval '20 seconds'
  ELSE excluded.schedule <> ALL (s.former) OR s.seen_at < clock_timestamp() - interval '1 minute' END`;

const lookSql = `
SELECT job, schedule, ${ms('last_slot')} AS last_slot, ${ms('running_slot')} AS running_slot, attempt, ${ms('retry_at')} AS retry_at,
  worker, ${jobPaused('job')} AS paused, ${ms('asked_at')} AS asked_at, ${ms('clock_timestamp()')} AS now
FROM outbox.job_state WHERE job = ANY ($1::text[])`;

/**
 * Sent by whoever holds the job's lock; this row decides all the same, because a job may be quicker than the clocks of
 * two processes agree. A slot that failed and waits for its retry gives way to the next one of the schedule, and not to
 * one that was asked for, which leaves `last_slot` alone: no slot of the schedule is lost to it. Parameters: job, slot,
 * schedule, the slot after it, time limit, worker, whether there is history, whether it was asked for.
 */
const tickSql = `
WITH t AS (UPDATE outbox.job_state SET last_slot = CASE WHEN $8::boolean THEN last_slot ELSE ${instant('$2')} END, running_slot = ${instant('$2')}, attempt = 1, worker = $6::int,
    asked_at = CASE WHEN $8::boolean THEN NULL ELSE asked_at END, asked_by = CASE WHEN $8::boolean THEN NULL ELSE asked_by END,
    started_at = clock_timestamp(), deadline = clock_timestamp() + $5::interval, next_slot = ${instant('$4')}, retry_at = NULL, finished_at = NULL, outcome = NULL
  WHERE job = $1::text AND schedule = $3::text
    AND CASE WHEN $8::boolean THEN ${askedFor('$2')} AND running_slot IS NULL
      ELSE last_slot < ${instant('$2')} AND ${instant('$2')} <= clock_timestamp() AND (running_slot IS NULL OR retry_at IS NOT NULL) END
    AND NOT ${jobPaused('$1::text')} RETURNING job, running_slot, worker, started_at),
r AS (INSERT INTO outbox.job_runs (job, slot, attempt, started_at, worker) SELECT job, running_slot, 1, started_at, worker FROM t WHERE $7::boolean
  ON CONFLICT DO NOTHING),
d AS (DELETE FROM outbox.job_tenants x USING t WHERE x.job = t.job AND x.slot <> t.running_slot)
SELECT job FROM t`;

/** A job that was paused after the asking keeps it. Parameters: job, slot, schedule. */
const takeAskedSql = `
UPDATE outbox.job_state SET asked_at = NULL, asked_by = NULL WHERE job = $1::text AND schedule = $3::text AND ${askedFor('$2')}
  AND NOT ${jobPaused('$1::text')} RETURNING job`;

/**
 * Nobody's and unfinished: who began it is gone as a worker, or is this very worker, which knows nothing of it. A worker
 * that lives and has lost the job's lock alone is waited for: its method may still run.
 */
const left = (worker: string): string =>
  `retry_at IS NULL AND (worker IS NULL OR worker = ${worker}::int OR pg_try_advisory_xact_lock_shared({worker}, worker))`;

/**
 * Tenants that failed are run again with the slot they failed in; after an interruption none is that has a verdict.
 * A slot that was asked for has history also where the job has none: its further attempts, too.
 * Parameters: job, slot, the attempt before, whether that one failed, time limit, worker, whether there is history.
 */
const takeUpSql = `
WITH t AS (UPDATE outbox.job_state SET attempt = attempt + 1, worker = $6::int, started_at = clock_timestamp(), deadline = clock_timestamp() + $5::interval,
    retry_at = NULL, finished_at = NULL, outcome = NULL
  WHERE job = $1::text AND running_slot = ${instant('$2')} AND attempt = $3::int
    AND CASE WHEN $4::boolean THEN retry_at <= clock_timestamp() ELSE ${left('$6')} END AND NOT ${jobPaused('$1::text')}
  RETURNING job, running_slot, attempt, worker, started_at),
b AS (UPDATE outbox.job_runs r SET outcome = 'interrupted', finished_at = clock_timestamp() FROM t
  WHERE r.job = t.job AND r.slot = t.running_slot AND r.attempt = $3::int AND r.finished_at IS NULL),
r AS (INSERT INTO outbox.job_runs (job, slot, attempt, started_at, worker) SELECT job, running_slot, attempt, started_at, worker FROM t
  WHERE $7::boolean OR EXISTS (SELECT 1 FROM outbox.job_runs o WHERE o.job = t.job AND o.slot = t.running_slot)
  ON CONFLICT (job, slot, attempt) DO UPDATE SET started_at = excluded.started_at, worker = excluded.worker, finished_at = NULL, outcome = NULL, error = NULL),
d AS (DELETE FROM outbox.job_tenants x USING t WHERE $4::boolean AND x.job = t.job AND x.slot = t.running_slot AND x.error IS NOT NULL)
SELECT job FROM t`;

const giveUpSql = `
WITH t AS (UPDATE outbox.job_state SET running_slot = NULL, outcome = 'interrupted', finished_at = clock_timestamp(), last_error = $5::text
  WHERE job = $1::text AND running_slot = ${instant('$2')} AND attempt = $3::int AND ${left('$4')} RETURNING job),
r AS (UPDATE outbox.job_runs r SET outcome = 'interrupted', finished_at = clock_timestamp(), error = $5::text FROM t
  WHERE r.job = t.job AND r.slot = ${instant('$2')} AND r.attempt = $3::int AND r.finished_at IS NULL),
d AS (DELETE FROM outbox.job_tenants x USING t WHERE x.job = t.job AND x.slot = ${instant('$2')})
SELECT job FROM t`;

/** Parameters: job, slot, attempt, outcome, error. */
const finishSql = `
WITH t AS (UPDATE outbox.job_state SET running_slot = NULL, outcome = $4::text, finished_at = clock_timestamp(), last_error = $5::text
  WHERE job = $1::text AND running_slot = ${instant('$2')} AND attempt = $3::int AND retry_at IS NULL RETURNING job),
r AS (UPDATE outbox.job_runs r SET outcome = $4::text, finished_at = clock_timestamp(), error = $5::text FROM t
  WHERE r.job = t.job AND r.slot = ${instant('$2')} AND r.attempt = $3::int),
d AS (DELETE FROM outbox.job_tenants x USING t WHERE x.job = t.job AND x.slot = ${instant('$2')})
SELECT job FROM t`;

/** Parameters: job, slot, attempt, outcome, error, delay or null, whether the attempt counts. */
const againSql = `
WITH t AS (UPDATE outbox.job_state SET retry_at = clock_timestamp() + $6::interval, outcome = $4::text, finished_at = clock_timestamp(), last_error = $5::text,
    attempt = attempt - CASE WHEN $7::boolean THEN 0 ELSE 1 END, worker = CASE WHEN $6::interval IS NULL THEN NULL ELSE worker END
  WHERE job = $1::text AND running_slot = ${instant('$2')} AND attempt = $3::int AND retry_at IS NULL RETURNING job),
r AS (UPDATE outbox.job_runs r SET outcome = $4::text, finished_at = clock_timestamp(), error = $5::text FROM t
  WHERE r.job = t.job AND r.slot = ${instant('$2')} AND r.attempt = $3::int)
SELECT job FROM t`;

/** The worker is asked for: its attempt may have ended since the row was read, and then the row is nobody's or gone. Parameters: job, slot, attempt, worker. */
const putBackSql = `
WITH t AS (UPDATE outbox.job_state SET attempt = attempt - 1, worker = NULL
  WHERE job = $1::text AND running_slot = ${instant('$2')} AND attempt = $3::int AND worker = $4::int AND retry_at IS NULL RETURNING job),
r AS (DELETE FROM outbox.job_runs r USING t WHERE r.job = t.job AND r.slot = ${instant('$2')} AND r.attempt = $3::int AND r.finished_at IS NULL)
SELECT job FROM t`;

/** Parameters: job, slot, outcome, error, how long it took. */
const noteSql = `
UPDATE outbox.job_state SET last_slot = greatest(last_slot, ${instant('$2')}), outcome = $3::text, last_error = $4::text,
  started_at = clock_timestamp() - $5::interval, finished_at = clock_timestamp() WHERE job = $1::text`;
