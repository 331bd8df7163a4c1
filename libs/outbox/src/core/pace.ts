/**
 * Keeps turns apart on average and lets a few through at once: a quiet loop answers without delay, a busy one is slowed
 * down to one turn in `apartMs`.
 */
export class Pace {
  /** When the turns let through so far are paid for. */
  private paidAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly apartMs: number,
    private readonly burst: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Milliseconds to wait before the next turn, which is taken by this call. */
  next(): number {
    const now = this.now();
    const start = Math.max(now, this.paidAt - (this.burst - 1) * this.apartMs);
    this.paidAt = Math.max(start, this.paidAt) + this.apartMs;
    return start - now;
  }
}
