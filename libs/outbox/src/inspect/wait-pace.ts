const quickestMs = 20;
const slowestMs = 1_000;
const growth = 1.5;

/** How long the looks of all waits of a process are apart: the longer nothing happens, the longer. */
export class WaitPace {
  private pauseMs = quickestMs;
  private endedAt = Number.NEGATIVE_INFINITY;

  /** After a look that took so long; a database that answers slowly is not asked for more than half of the time. */
  afterLook(changed: boolean, tookMs: number, now = performance.now()): number {
    this.endedAt = now;
    const pause = this.pauseMs;
    this.pauseMs = changed ? quickestMs : Math.min(slowestMs, pause * growth);
    return Math.max(changed ? quickestMs : pause, tookMs);
  }

  /** Somebody new waits: now, unless a look has only just ended. */
  atNewcomer(now = performance.now()): number {
    this.pauseMs = quickestMs;
    return Math.max(0, this.endedAt + quickestMs - now);
  }
}
