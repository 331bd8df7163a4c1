import type { Log } from '../core/throttled-log.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { AttemptStart, JobAttempt } from '../tables/jobs.table.js';
import type { Bound } from '../tables/wire/statement.js';
import type { Entry } from './entry.js';
import type { JobLocks } from './job-locks.js';
import { JobRun } from './job-run.js';
import type { JobTransactionParts } from './job-transaction.js';
import { instant, type RunRecords } from './run-records.js';
import type { TenantRunner } from './tenant-runner.js';

export interface StarterParts {
  readonly connection: InfrastructureConnection;
  readonly locks: JobLocks;
  readonly records: RunRecords;
  readonly tenants: TenantRunner;
  readonly transactions: JobTransactionParts;
  readonly identity: WorkerIdentity;
  readonly log: Log;
  /** Once the process stops, what fails is charged to nobody. */
  stopping(): boolean;
  /** A run began, or ended. */
  began(attempt: JobAttempt): void;
  ended(): void;
}

/** Begins attempts and sees them through: lock, row, method, record, lock. */
export class JobStarter {
  constructor(private readonly parts: StarterParts) {}

  /** A new slot; `next` is the one after it. What was asked for has history: whoever asked wants to know. */
  async tick(entry: Entry, slot: number, next: number, asked = false): Promise<void> {
    const { name, schedule, history } = entry.definition;
    const start = { ...this.startOf(entry, { job: name, slot, attempt: 1 }), history: history || asked };
    await this.begin(entry, start, this.jobs.tick(start, schedule.text, next, asked));
  }

  /** A run of a parallel job that was asked for: once, by whoever is first. Like its slots it is begun without a lock. */
  async tickAlone(entry: Entry, slot: number): Promise<void> {
    const { name, schedule } = entry.definition;
    const [{ rowCount }] = await this.parts.connection.run(this.jobs.takeAsked(name, slot, schedule.text));
    if (rowCount > 0) this.launch(entry, { job: name, slot, attempt: 1 });
  }

  /** One more attempt at a slot. `failed` says how the one before ended: with an error, or nobody knows. */
  async takeUp(entry: Entry, attempt: JobAttempt, failed: boolean): Promise<void> {
    const start = this.startOf(entry, attempt);
    await this.begin(entry, start, this.jobs.takeUp(start, failed));
  }

  /** An attempt that this worker began in the row alone: the answer was lost, and no method with it. It counts for nothing. */
  async putBack(attempt: JobAttempt, worker: number): Promise<void> {
    await this.parts.connection.run(this.jobs.putBack(attempt, worker));
  }

  /** No more attempts at a slot that was left unfinished. */
  async giveUp(entry: Entry, attempt: JobAttempt): Promise<void> {
    const { locks, connection, log, identity } = this.parts;
    const { job, slot } = attempt;
    if (!(await locks.take(job))) return;
    const why = `left unfinished by attempt ${attempt.attempt} of ${entry.definition.retries + 1}: its process died, or its lock was lost`;
    try {
      const [{ rowCount }] = await connection.run(this.jobs.giveUp(attempt, identity.number ?? null, why));
      if (rowCount > 0) log.error(`job '${job}' is given up for slot ${instant(slot)}: ${why}`);
    } finally {
      await locks.release(job);
    }
  }

  /** Runs the method, and does not wait for it. */
  launch(entry: Entry, attempt: JobAttempt): void {
    const { transactions, tenants } = this.parts;
    const run = new JobRun(transactions, tenants, entry.definition, attempt);
    entry.run = run;
    this.parts.began(attempt);
    entry.ended = this.follow(entry, run);
  }

  private get jobs() {
    return this.parts.transactions.database.jobs;
  }

  /** The lock first, then the row: what the row says is done under the lock, and a crash between the two leaves nothing. */
  private async begin(entry: Entry, attempt: JobAttempt, claim: Bound): Promise<void> {
    const { locks, connection } = this.parts;
    if (!(await locks.take(attempt.job))) return;
    let begun = false;
    try {
      begun = (await connection.run(claim))[0].rowCount > 0;
    } finally {
      if (!begun) await locks.release(attempt.job).catch(() => {});
    }
    // The connection may have gone between the answer and now, and the lock with it, when nothing ran that could be told.
    if (begun && locks.holds(attempt.job)) this.launch(entry, attempt);
  }

  private async follow(entry: Entry, run: JobRun): Promise<void> {
    const { records, locks, stopping, ended } = this.parts;
    const errors = await run.execute();
    if (entry.definition.parallel) await records.note(run, errors);
    else if (!run.left) await records.end(run, errors, stopping());
    delete entry.run;
    // When the connection is gone, so is the lock.
    await locks.release(entry.definition.name).catch(() => {});
    ended();
  }

  private startOf({ definition }: Entry, attempt: JobAttempt): AttemptStart {
    const { timeoutMs, history } = definition;
    return { ...attempt, timeoutMs, history, worker: this.parts.identity.number ?? null };
  }
}
