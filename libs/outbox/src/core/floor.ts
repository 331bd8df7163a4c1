import { jittered } from './backoff.js';

/**
 * Where a poll begins to read. While a snapshot is held anywhere (a long handler, pg_dump) dead index entries of finished
 * rows cannot be removed, and a poll walks them: 1,000 of them are a quarter of a millisecond, which is more than the
 * rest of it. So a fast poll reads from half a second before the one before it (a minute was eight times as slow after
 * half a minute of 200 events a second); and every 5 s one reads from the start.
 *
 * This is no "after the last id": a row that is committed later than half a second after it was written is found by the
 * poll that its commit asks for, which is told how far to reach back, or by the next full one.
 */
export class Floor {
  private value: string | undefined;
  private fullAt = 0;
  private reachMs = 0;

  constructor(
    private readonly fullEveryMs = 5_000,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** `full` when this poll reads from the start; `reachMs` is how far below the floor it reads. */
  next(): { floor: string; reachMs: number; full: boolean } {
    const { reachMs } = this;
    this.reachMs = 0;
    if (this.value === undefined || this.now() >= this.fullAt) return { floor: '-infinity', reachMs: 0, full: true };
    return { floor: this.value, reachMs, full: false };
  }

  /** A commit of `ageMs` after its row was written: the next poll shall find it. */
  reach(ageMs: number): void {
    this.reachMs = Math.max(this.reachMs, ageMs);
  }

  /** After a poll that left nothing behind, which says where the next may begin. */
  passed(from: string, full: boolean): void {
    this.value = from;
    if (full) this.fullAt = this.now() + jittered(this.fullEveryMs);
  }

  /** Something was left behind: more old rows may wait, so the next poll reads from the start again. */
  reset(): void {
    this.value = undefined;
  }
}
