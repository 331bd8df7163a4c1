import { databaseTrouble } from '../core/database-errors.js';
import type { Log } from '../core/throttled-log.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { BatchRow } from '../tables/retention.table.js';
import { type Bound, interval } from '../tables/wire/statement.js';
import { BucketPurge } from './bucket-purge.js';
import { type PurgeLimits, purgeLimits } from './purge-limits.js';

/** What one pass did. */
export interface PurgeReport {
  /** Buckets whose old events were forgotten; a bucket is a day, or several that lie ten days apart. */
  readonly days: number;
  /** Events that were set aside and put back meanwhile. */
  readonly kept: number;
  /** Buckets whose marks and attempts were forgotten. */
  readonly marks: number;
  /** Buckets of which something was left for a later pass. */
  readonly left: number;
  readonly uniqueKeys: number;
  readonly deadLetters: number;
  readonly jobRuns: number;
  readonly jobStates: number;
}

/**
 * Everything that is forgotten: the days of the ring, then expired unique keys, resolved dead letters, old runs and
 * states of jobs. What cannot be had now is left to the next pass, and two passes at once take nothing from each other.
 *
 * | a pass ends in the middle of | what is left | what becomes of it |
 * |---|---|---|
 * | forgetting events | nothing was changed | the next pass |
 * | events and marks, between the two | marks without events; nothing runs without its event | the next pass forgets them |
 * | deleting rows | whole batches are gone, the rest is there | the next pass |
 */
export class Purge {
  constructor(
    private readonly database: Database,
    private readonly settings: Pick<OutboxSettings, 'retentionMs'>,
    private readonly log: Log,
    private readonly limits: PurgeLimits = purgeLimits,
  ) {}

  /**
   * One pass. Ends early, between two steps, when the signal aborts. A step that fails stops no other, and all errors
   * are thrown together at the end; an outage ends the pass.
   */
  async run(signal: AbortSignal): Promise<PurgeReport> {
    // A connection for the pass: a statement may take seconds, and nobody else's shall wait behind it.
    const connection = this.database.infrastructure('purge', this.log);
    try {
      const pass = new PurgePass(this.database, connection, this.limits, this.log, signal);
      return await pass.run(this.settings.retentionMs);
    } finally {
      await connection.close();
    }
  }
}

class PurgePass {
  private readonly report = {
    days: 0,
    kept: 0,
    marks: 0,
    left: 0,
    uniqueKeys: 0,
    deadLetters: 0,
    jobRuns: 0,
    jobStates: 0,
  };
  private readonly errors: unknown[] = [];

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
    private readonly limits: PurgeLimits,
    private readonly log: Log,
    private readonly signal: AbortSignal,
  ) {}

  async run(retentionMs: number): Promise<PurgeReport> {
    const { retention } = this.database;
    const { batch, deadLettersMs, jobRunsMs, jobRunsKept, jobStatesMs } = this.limits;
    await this.step(() => this.days(retentionMs));
    await this.inBatches('uniqueKeys', (from) => retention.uniqueKeys(from, batch));
    await this.inBatches('deadLetters', (from) => retention.deadLetters(from, batch, interval(deadLettersMs)));
    await this.inBatches('jobRuns', () => retention.jobRuns(batch, interval(jobRunsMs), jobRunsKept));
    await this.step(async () => {
      const { gone } = await this.row(retention.jobStates(interval(jobStatesMs)));
      this.report.jobStates += gone;
    });
    if (this.errors.length > 0)
      throw new AggregateError(this.errors, `outbox.purge failed in part: ${this.errors.map(textOf).join('; ')}`);
    return this.report;
  }

  private async days(retentionMs: number): Promise<void> {
    const { retention } = this.database;
    const window = await this.row(retention.window(interval(retentionMs)));
    const purge = new BucketPurge(retention, this.connection, this.limits, this.log, this.signal);
    for (const bucket of retention.look.keys())
      await this.step(async () => {
        const outcome = await purge.run(bucket, window);
        this.report.days += Number(outcome.forgotten);
        this.report.kept += outcome.kept;
        this.report.marks += Number(outcome.marksForgotten);
        this.report.left += Number(outcome.left);
      });
  }

  private inBatches(
    count: 'uniqueKeys' | 'deadLetters' | 'jobRuns',
    bind: (from: string) => Bound<BatchRow>,
  ): Promise<void> {
    return this.step(async () => {
      for (let from = '-infinity'; !this.signal.aborted; ) {
        const { gone, last } = await this.row(bind(from));
        this.report[count] += gone;
        if (gone < this.limits.batch) return;
        from = last ?? from;
      }
    });
  }

  private async step(work: () => Promise<void>): Promise<void> {
    if (this.signal.aborted) return;
    try {
      await work();
    } catch (error) {
      if (databaseTrouble(error) === 'outage') throw error;
      this.errors.push(error);
    }
  }

  private async row<Row>(bound: Bound<Row>): Promise<Row> {
    const [{ rows }] = await this.connection.run(bound);
    const [row] = rows;
    if (row === undefined) throw new Error(`${bound.name} returned no row`);
    return row;
  }
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
