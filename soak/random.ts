/** A small seeded generator (mulberry32): the same numbers for the same seed, on every machine. */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  /** From 0 to 1, without 1. */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }

  between(least: number, most: number): number {
    return least + this.next() * (most - least);
  }

  shuffled<T>(items: readonly T[]): T[] {
    return items
      .map((item) => ({ item, at: this.next() }))
      .sort((a, b) => a.at - b.at)
      .map(({ item }) => item);
  }
}

/** One number of the items, `at` being from 0 to 1. */
export function pick<T>(items: readonly T[], at: number): T | undefined {
  return items[Math.min(items.length - 1, Math.floor(at * items.length))];
}

/** A seed for the n-th of something, so that it does not depend on what came before. */
export function seedOf(seed: number, ...numbers: readonly number[]): number {
  return numbers.reduce((mixed, n) => Math.imul(mixed ^ (n + 0x9e3779b9), 0x85ebca6b) ^ (mixed >>> 13), seed) >>> 0;
}
