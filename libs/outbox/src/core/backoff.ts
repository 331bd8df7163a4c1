/**
 * How long a failed delivery waits before its next attempt. Default ladder (design, section 4): 2 s, 10 s, 30 s, 2 min,
 * 10 min, 30 min, 1 h, 3 h, 6 h, each within 10 %; in all about 10 h 43 min from the first failure to the tenth.
 */
export const defaultLadderMs: readonly number[] = [
  2_000, 10_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000, 10_800_000, 21_600_000,
];

const jitterShare = 0.1;

/** `milliseconds` within 10 % either way, so that what failed together does not come back together. */
export function jittered(milliseconds: number, random: () => number = Math.random): number {
  return Math.max(0, Math.round(milliseconds * (1 + jitterShare * (2 * random() - 1))));
}

/** The step after failed attempt `attempt` (from 1); the last step serves for all that follow. */
export function ladderStep(ladderMs: readonly number[], attempt: number): number {
  return ladderMs[Math.min(attempt, ladderMs.length) - 1] ?? 0;
}

/** Doubling from `firstMs` to at most `mostMs`, jittered: for loops that met an error for the `failures`-th time in a row. */
export function loopBackoff(failures: number, firstMs = 100, mostMs = 10_000): number {
  return jittered(Math.min(mostMs, firstMs * 2 ** Math.min(failures - 1, 20)));
}
