import { SchedulerRegistry } from '@nestjs/schedule';
import { eventually } from './eventually.js';
import type { Stage } from './stage.js';
import type { TestApp } from './test-app.js';

/** Comes once a year, so that a test alone says when it is due. */
export const yearly = '0 0 1 1 *';

/** What `job_state` has of a job. */
export interface JobState {
  readonly schedule: string;
  readonly last_slot: Date;
  readonly running_slot: Date | null;
  readonly attempt: number;
  readonly retry_at: Date | null;
  readonly started_at: Date | null;
  readonly finished_at: Date | null;
  readonly outcome: string | null;
  readonly last_error: string | null;
}

export interface JobRunRow {
  readonly attempt: number;
  readonly slot: Date;
  readonly outcome: string | null;
  readonly error: string | null;
  readonly finished_at: Date | null;
}

export function registryOf({ app }: TestApp): SchedulerRegistry {
  return app.get(SchedulerRegistry, { strict: false });
}

export async function stateOf(stage: Stage, job: string): Promise<JobState | undefined> {
  const [row] = await stage.database.query<JobState & Record<string, unknown>>(
    'SELECT * FROM outbox.job_state WHERE job = $1',
    [job],
  );
  return row;
}

export function runsOf(stage: Stage, job: string): Promise<JobRunRow[]> {
  return stage.database.query<JobRunRow & Record<string, unknown>>(
    'SELECT attempt, slot, outcome, error, finished_at FROM outbox.job_runs WHERE job = $1 ORDER BY slot, attempt',
    [job],
  );
}

/** As if nobody had been there for two years: a job that makes up for what was missed is due now. */
export async function missed(stage: Stage, job: string): Promise<void> {
  const sql = `UPDATE outbox.job_state SET last_slot = clock_timestamp() - interval '2 years' WHERE job = $1 RETURNING job`;
  await eventually(`${job} is registered`, async () => (await stage.database.query(sql, [job])).length > 0);
}

/** Lets a `yearly` job run now, while the app runs. */
export async function tickNow(stage: Stage, app: TestApp, job: string): Promise<void> {
  await missed(stage, job);
  await registryOf(app).getCronJob(job).fireOnTick();
}

/** Waits for the end of an attempt that failed and is to be tried again; makes that due at once, and waits for it. */
export async function retryNow(stage: Stage, app: TestApp, job: string): Promise<JobState> {
  const failed = await eventually(`${job} waits for its retry`, async () => {
    const state = await stateOf(stage, job);
    return state?.retry_at && state;
  });
  // On a slow machine it may have come by itself meanwhile.
  await stage.database.query(
    'UPDATE outbox.job_state SET retry_at = clock_timestamp() WHERE job = $1 AND attempt = $2 AND retry_at IS NOT NULL',
    [job, failed.attempt],
  );
  await registryOf(app).getCronJob(job).fireOnTick();
  await eventually(`${job} is tried again`, async () => ((await stateOf(stage, job))?.attempt ?? 0) > failed.attempt);
  return failed;
}

/** Waits until a job has come to an end: no attempt runs, none is to come. */
export function overOf(stage: Stage, job: string): Promise<JobState> {
  return eventually(`${job} is over`, async () => {
    const state = await stateOf(stage, job);
    return state?.outcome && state.running_slot === null && state;
  });
}
