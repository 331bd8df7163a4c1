import { setTimeout as pause } from 'node:timers/promises';
import { databaseTrouble } from '../core/database-errors.js';
import type { Log } from '../core/throttled-log.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { BucketRow, RetentionTable, WindowRow } from '../tables/retention.table.js';
import { dayOf } from '../tables/schema/schema-versions.js';
import type { Bound } from '../tables/wire/statement.js';
import type { PurgeLimits } from './purge-limits.js';

/** What became of one bucket of the ring. */
export interface BucketOutcome {
  /** Its old events are gone, but for `kept`. */
  readonly forgotten: boolean;
  /** Events that were set aside and put back: unfinished ones, and those of a newer day. */
  readonly kept: number;
  /** The marks and attempts of events that are gone are gone as well. */
  readonly marksForgotten: boolean;
  /** Something was left for a later pass. */
  readonly left: boolean;
}

const nothing: BucketOutcome = { forgotten: false, kept: 0, marksForgotten: false, left: false };

/**
 * Forgets the old days of one bucket.
 *
 *   look ── nothing old, or too little of it finished ──▶ marks without events? ── yes ──▶ forget marks
 *    └─ something ── little to set aside ──▶ forget events ──▶ (committed) ──▶ forget marks
 *                └─ too much ──▶ left alone
 *
 * Events go first and their marks in a later transaction, so that an event that exists proves that its marks do. A pass
 * that dies between the two leaves marks without events, which harm nobody and are found by the next one.
 */
export class BucketPurge {
  constructor(
    private readonly table: RetentionTable,
    private readonly connection: InfrastructureConnection,
    private readonly limits: PurgeLimits,
    private readonly log: Log,
    private readonly signal: AbortSignal,
  ) {}

  async run(bucket: number, window: WindowRow): Promise<BucketOutcome> {
    const events = await this.events(bucket, window);
    if (events.left || this.signal.aborted) return { ...events, left: true };
    // Not of a day that is still there: the question reads all of it.
    const orphans =
      events.forgotten || (await this.row(this.table.orphans[bucket]?.(window.first, this.limits.setAside)))?.here;
    if (!orphans) return events;
    const marks = await this.unlocked(`the marks of bucket ${bucket}`, this.table.forgetMarks(bucket));
    return { ...events, marksForgotten: marks !== undefined, left: marks === undefined };
  }

  private async events(bucket: number, { before, first }: WindowRow): Promise<BucketOutcome> {
    const { setAside, few } = this.limits;
    const look = await this.row(this.table.look[bucket]?.(first, setAside, few));
    if (!look?.oldest || !this.worthwhile(look)) return nothing;
    const day = dayOf(look.oldest);
    if (!this.affordable(look, day)) return { ...nothing, left: true };
    const forgotten = await this.unlocked(`the events of ${day}`, this.table.forgetEvents(bucket, before));
    if (!forgotten) return { ...nothing, left: true };
    const { kept } = forgotten;
    this.log.log(`outbox.purge forgot the events of ${day}${kept > 0 ? `, all but ${kept}` : ''}`);
    return { ...nothing, forgotten: true, kept };
  }

  /** Nothing can be forgotten of a day all of whose events still wait; whether that is so is unknown beyond the limit. */
  private worthwhile({ finished, unfinished, newer }: BucketRow): boolean {
    const { setAside, few } = this.limits;
    if (unfinished > setAside) return true;
    return newer > few ? finished >= few : finished > 0;
  }

  private affordable({ unfinished, newer }: BucketRow, day: string): boolean {
    const { setAside } = this.limits;
    if (unfinished + newer <= setAside) return true;
    const many = (n: number): string => (n > setAside ? `more than ${setAside}` : `${n}`);
    this.log.warn(
      `outbox.purge leaves ${day} alone: ${many(unfinished)} of its events are not finished and ${many(newer)} of a newer day are in its bucket; they would have to be set aside, and at most ${setAside} are`,
    );
    return false;
  }

  /** The answer of what waits for a lock, tried again while it is busy; `undefined` when it stayed so. */
  private async unlocked<Row>(what: string, bound: Bound<Row>): Promise<Row | undefined> {
    const { tries, pauseMs } = this.limits;
    for (let n = 1; !this.signal.aborted; n++) {
      try {
        return await this.row(bound);
      } catch (error) {
        if (databaseTrouble(error) !== 'busy') throw error;
        if (n === tries) break;
        await this.pause(pauseMs);
      }
    }
    if (!this.signal.aborted)
      this.log.warn(
        `outbox.purge leaves ${what} to its next pass: a handler of that day, a vacuum or a dump held a lock on them in all ${tries} tries`,
      );
    return undefined;
  }

  private async row<Row>(bound: Bound<Row> | undefined): Promise<Row | undefined> {
    if (!bound) return undefined;
    const [{ rows }] = await this.connection.run(bound);
    return rows[0];
  }

  /** Jittered, or two purges that wait for one another would meet again. */
  private async pause([from, to]: readonly [number, number]): Promise<void> {
    await pause(from + Math.random() * (to - from), undefined, { signal: this.signal }).catch(() => {});
  }
}
