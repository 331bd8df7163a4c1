import { pause } from './figures.js';

/** Starts `once` so many times a second whatever it takes: a slow moment must not slow the publisher that measures it. */
export async function steadily(
  perSecond: number,
  goOn: (n: number) => boolean,
  once: (n: number) => Promise<unknown>,
): Promise<void> {
  const begun = performance.now();
  const all: Promise<unknown>[] = [];
  for (let n = 0; goOn(n); n++) {
    const due = begun + (n * 1_000) / perSecond;
    const early = due - performance.now();
    if (early > 0) await pause(early);
    all.push(once(n));
  }
  await Promise.all(all);
}

/** One event, on the clock of this process. */
export interface Timed {
  readonly committed: number;
  /** From its resolved commit to the first line of its handler. */
  readonly wait: number;
}

/** Pairs the two ends of every event, in whichever order they are told. */
export class Stopwatch {
  private readonly commits = new Map<string, number>();
  private readonly starts = new Map<string, number>();

  committed(id: string): void {
    this.commits.set(id, performance.now());
  }

  started(id: string): void {
    if (!this.starts.has(id)) this.starts.set(id, performance.now());
  }

  /** Waits for the handlers of all that was committed; in the order of the commits. */
  async all(): Promise<Timed[]> {
    const until = performance.now() + 30_000;
    while (this.starts.size < this.commits.size) {
      if (performance.now() > until)
        throw new Error(`only ${this.starts.size} of ${this.commits.size} events reached a handler`);
      await pause(20);
    }
    return [...this.commits].map(([id, committed]) => ({
      committed,
      wait: (this.starts.get(id) ?? Number.NaN) - committed,
    }));
  }
}
