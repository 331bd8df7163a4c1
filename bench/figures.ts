import type { BenchOptions } from './options.js';
import type { BenchServer } from './server.js';

/** One line of the result. */
export interface Line {
  readonly measurement: string;
  readonly what: string;
  readonly unit: string;
  readonly better: 'more' | 'less';
  readonly ours: number;
  /** The same work in plain pg. */
  readonly plain: number;
  /** The same work in TypeORM without the library, where that says something. */
  readonly typeorm?: number;
  /** Ours over postgres(), where `ours` is over another transport. */
  readonly postgres?: number;
  /** `ours / plain`. */
  readonly ratio: number;
}

export function line(figures: Omit<Line, 'ratio'>): Line {
  return { ...figures, ratio: figures.ours / figures.plain };
}

/** What a measurement is given. */
export interface Bench {
  readonly server: BenchServer;
  readonly options: BenchOptions;
  /** Tells people what goes on; never on stdout. */
  note(text: string): void;
}

export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** The nearest rank. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1);
  return sorted[at] ?? Number.NaN;
}

/** Runs every subject once a round, in turn, so that a slow moment of the machine meets all of them; medians over the rounds. */
export async function rounds<K extends string>(
  runs: number,
  subjects: Readonly<Record<K, (round: number) => Promise<number>>>,
): Promise<Record<K, number>> {
  const names = Object.keys(subjects) as K[];
  const values = new Map<K, number[]>(names.map((name) => [name, []]));
  for (let round = 0; round < runs; round++)
    for (const name of names) values.get(name)?.push(await subjects[name](round));
  return Object.fromEntries(names.map((name) => [name, median(values.get(name) ?? [])])) as Record<K, number>;
}

/** How often a second `once` gets done by `lanes` loops side by side, after a warm-up. */
export async function rate(
  seconds: number,
  lanes: number,
  once: (lane: number, n: number) => Promise<unknown>,
): Promise<number> {
  let done = 0;
  let n = 0;
  let open = true;
  const loops = Array.from({ length: lanes }, async (_, lane) => {
    for (; open; done++) await once(lane, n++);
  });
  const failed = Promise.all(loops).then(() => {});
  await Promise.race([pause(Math.min(500, seconds * 200)), failed]);
  const before = done;
  const started = performance.now();
  await Promise.race([pause(seconds * 1_000), failed]);
  const perSecond = ((done - before) * 1_000) / (performance.now() - started);
  open = false;
  await failed;
  return perSecond;
}

export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
