import { OutboxError } from './outbox.errors.js';

/** One tenant's part of a periodic job failed; what its transaction wrote is undone. `cause` is what the method threw. */
export class TenantFailedError extends OutboxError {
  readonly code = 'OUTBOX_TENANT_FAILED';
  override readonly retryable = true;

  constructor(
    readonly job: string,
    readonly tenantId: string,
    cause: unknown,
  ) {
    super(`tenant '${tenantId}': ${messageOf(cause)}`, { cause });
  }
}

/** One row of `ctx.each` failed; what its transaction wrote is undone, and the other rows were run all the same. */
export class RowFailedError extends OutboxError {
  readonly code = 'OUTBOX_ROW_FAILED';
  override readonly retryable = true;

  constructor(
    readonly job: string,
    /** Its place among the rows, from 0. */
    readonly index: number,
    readonly row: unknown,
    cause: unknown,
  ) {
    super(`row ${index}: ${messageOf(cause)}`, { cause });
  }
}

/** The reason of `ctx.signal` when a job runs longer than its `timeout`. Its lock stays held until its method ends. */
export class JobTimeoutError extends OutboxError {
  readonly code = 'OUTBOX_JOB_TIMEOUT';
  override readonly retryable = true;

  constructor(
    readonly job: string,
    timeoutMs: number,
  ) {
    super(
      `job '${job}' has run for ${timeoutMs} ms, its timeout: its signal is aborted, and its lock stays held until the ` +
        'method ends. Pass ctx.signal to what it waits for, or raise the timeout.',
    );
  }
}

/** The reason of `ctx.signal` when the connection that held the job's lock is gone: another instance may run the job now. */
export class JobLockLostError extends OutboxError {
  readonly code = 'OUTBOX_JOB_LOCK_LOST';
  override readonly retryable = true;

  constructor(readonly job: string) {
    super(
      `the connection that held the lock of job '${job}' was lost; its method is asked to end, so that no other runs beside it`,
    );
  }
}

/** The reason of `ctx.signal` when the process has no more time to wait for the job. */
export class JobStoppedError extends OutboxError {
  readonly code = 'OUTBOX_JOB_STOPPED';
  override readonly retryable = true;

  constructor(readonly job: string) {
    super(`the process stops and cannot wait longer for job '${job}'; its slot is taken up again elsewhere`);
  }
}

/** A run was asked for of a job that no process has registered (lately: a job without code is forgotten after 30 days). */
export class UnknownJobError extends OutboxError {
  readonly code = 'OUTBOX_UNKNOWN_JOB';

  constructor(
    readonly job: string,
    /** Those there are, what is most like it first. */
    readonly known: readonly string[],
  ) {
    const [nearest, ...others] = known.slice(0, toldJobs);
    const more = known.length > toldJobs ? `, and ${known.length - toldJobs} more` : '';
    super(
      nearest === undefined
        ? `there is no job '${job}', nor any other: no process with jobs has run on this outbox yet`
        : `there is no job '${job}'; there are, the nearest first: ${[nearest, ...others].join(', ')}${more}`,
    );
  }
}

const toldJobs = 20;

/** A run was asked for of a job that is paused: it would wait until nobody remembers it. */
export class JobPausedError extends OutboxError {
  readonly code = 'OUTBOX_JOB_PAUSED';
  override readonly retryable = true;

  constructor(
    readonly job: string,
    pause: { since: Date; until: Date | null; by: string | null; reason: string | null },
  ) {
    const { since, until, by, reason } = pause;
    super(
      `job '${job}' is paused since ${since.toISOString()}${until ? ` until ${until.toISOString()}` : ''}${by === null ? '' : ` by ${by}`}` +
        `${reason === null ? '' : ` ("${reason}")`}, so nothing of it is run; resume it first: npx nestjs-outbox resume --job ${job}`,
    );
  }
}

/** What an error says, whatever was thrown, in at most so many characters: it goes into lines of the log, and joined errors. */
export function messageOf(error: unknown, most = 500): string {
  try {
    const text = String(error instanceof Error ? error.message || error.name : error);
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  } catch {
    return 'an error that cannot be read';
  }
}
