import { countedTo } from '../tables/health.table.js';

const units: readonly (readonly [number, string])[] = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
];

/** A length of time in the largest unit of which there are two, for people: 90 s, 12 min, 3 h, 2 d. */
export function span(milliseconds: number): string {
  const [size, unit] = units.find(([size]) => milliseconds >= 2 * size) ?? [1, 'ms'];
  return `${Math.floor(milliseconds / size)} ${unit}`;
}

/** `1 event is`, `12 events are`, `more than 10,000 events are`. */
export function countOf(count: number, one: string, many = `${one}s`): string {
  if (count >= countedTo) return `more than 10,000 ${many} are`;
  return `${count} ${count === 1 ? `${one} is` : `${many} are`}`;
}
