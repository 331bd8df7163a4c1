import { nearestFirst } from '../core/nearest.js';
import { isStorable } from '../core/storable.js';
import { JobPausedError, UnknownJobError } from '../outbox.job-errors.js';
import type { Database } from '../tables/database.js';
import type { AskedRow } from '../tables/periodic.table.js';
import { type ActionOptions, actorOf } from './audit.js';
import type { PeriodicInfo } from './periodic-info.js';
import { type KnownJobs, pauseOf, periodicInfos } from './periodic-rows.js';

/** Periodic jobs for people: what there is of them in the database, and one more run of one. */
export class PeriodicReader {
  constructor(
    private readonly database: Database,
    private readonly jobs: KnownJobs,
    private readonly app: string,
  ) {}

  async list(): Promise<readonly PeriodicInfo[]> {
    const { periodic } = this.database;
    // A run holds its lock before and after its row says so. Of two looks around the row one sees it, whatever begins or
    // ends meanwhile.
    const [before, states, runs, after] = await this.database.onPool(
      periodic.locks(),
      periodic.states(),
      periodic.runs(),
      periodic.locks(),
    );
    return periodicInfos(states.rows, runs.rows, [...before.rows, ...after.rows], this.jobs);
  }

  /** One more run, as soon as a process that has the job looks; under the same lock. Resolves to the slot it was given. */
  async run(job: string, options: ActionOptions = {}): Promise<Date> {
    const asked = (await this.ask(job, options)) ?? (await this.askAnew(job, options));
    if (!asked) throw new UnknownJobError(job, nearestFirst(job, await this.names()));
    const paused = pauseOf(job, asked);
    if (paused) throw new JobPausedError(job, paused);
    this.jobs.nudge();
    return new Date(asked.slot ?? 0);
  }

  /** A process that has just booted has perhaps not registered its jobs yet. */
  private async askAnew(job: string, options: ActionOptions): Promise<AskedRow | undefined> {
    if (!this.jobs.find(job)) return undefined;
    await this.jobs.register();
    return this.ask(job, options);
  }

  private async ask(job: string, options: ActionOptions): Promise<AskedRow | undefined> {
    const { by, reason } = actorOf(options, this.app);
    const { periodic, notify } = this.database;
    if (!isStorable(job)) return undefined;
    // Told in the same transaction, once and for all: a command line has gone before a notifier would have its turn.
    const [{ rows }] = await this.database.onPool(periodic.ask(job, by, reason), notify('jobs 0'));
    return rows[0];
  }

  private async names(): Promise<string[]> {
    const [{ rows }] = await this.database.onPool(this.database.periodic.names());
    return rows.map(({ job }) => job);
  }
}
