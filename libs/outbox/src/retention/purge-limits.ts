const day = 86_400_000;

/** What one pass may do, and how long the lesser rows are kept. How long events are is the option `retention.after`. */
export interface PurgeLimits {
  /**
   * Rows of a bucket that are set aside and put back under its lock: what is unfinished, and what of a newer day is in it
   * already. A hundred thousand took 1.8 s on two busy cores, in which the relay waits as well. With more the day stays until
   * there are fewer; ten days on it goes with the next day of its bucket at the latest.
   */
  readonly setAside: number;
  /**
   * Fewer finished events than this are not worth the lock of a bucket that has more than this of a newer day: publishes
   * would wait for it. It is what old retries leave behind when they end at last, and it goes with the newer day.
   */
  readonly few: number;
  /**
   * How often a locked bucket is tried. A try waits 150 ms for the lock, and whoever comes after it waits behind it: an
   * open handler of that day is met again and again rather than waited for.
   */
  readonly tries: number;
  /** The pause between two tries, from and to. */
  readonly pauseMs: readonly [number, number];
  /** Rows that one statement deletes. */
  readonly batch: number;
  /** Dead letters are kept this long after they were resolved or retried; an open one is kept for ever. */
  readonly deadLettersMs: number;
  /** Runs of jobs are kept this long after their slot … */
  readonly jobRunsMs: number;
  /** … and so many of one job. */
  readonly jobRunsKept: number;
  /** A job that no process has announced for so long is forgotten, its last slot with it. */
  readonly jobStatesMs: number;
}

export const purgeLimits: PurgeLimits = {
  setAside: 100_000,
  few: 1_000,
  tries: 20,
  pauseMs: [500, 2_000],
  batch: 5_000,
  deadLettersMs: 30 * day,
  jobRunsMs: 30 * day,
  jobRunsKept: 1_000,
  jobStatesMs: 30 * day,
};
