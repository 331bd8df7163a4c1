import { jittered } from './backoff.js';

/**
 * Where a poll begins to read. While a snapshot is held anywhere (a long handler, pg_dump) dead index entries of
 * finished rows cannot be removed, and a poll that walks them took 14 ms instead of 0.4. So the fast polls read from a
 * minute ago; every 5 s one reads from the start and finds what committed late. This is no "after the last id": it
 * only lets a row that took over a minute to commit wait for the next full poll.
 */
export class Floor {
  private value: string | undefined;
  private fullAt = 0;

  constructor(
    private readonly fullEveryMs = 5_000,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** `full` when this poll reads from the start. */
  next(): { floor: string; full: boolean } {
    if (this.value === undefined || this.now() >= this.fullAt) return { floor: '-infinity', full: true };
    return { floor: this.value, full: false };
  }

  /** After a full poll that left nothing behind: read from `minuteAgo` (the database's clock) for a while. */
  swept(minuteAgo: string): void {
    this.value = minuteAgo;
    this.fullAt = this.now() + jittered(this.fullEveryMs);
  }

  /** A full poll came back full: more old rows wait, so the next one reads from the start again. */
  reset(): void {
    this.value = undefined;
  }
}
