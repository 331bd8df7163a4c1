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

const longestLine = 200;

/** The first line of a stored text, fit for a terminal: no control characters, which could rewrite what stands above. */
export function firstLine(text: string | null): string {
  const [line = ''] = (text ?? '').trimStart().split('\n');
  const plain = line.replaceAll(/\p{Cc}/gu, ' ').trimEnd();
  return plain.length > longestLine ? `${plain.slice(0, longestLine - 1).toWellFormed()}…` : plain;
}

/** A text as one argument of a shell's command; what could rewrite the terminal on the way there is no part of it. */
export function argument(given: string): string {
  const text = given.replaceAll(/\p{Cc}/gu, '?');
  return /^[\w.:@/-]+$/.test(text) && !text.startsWith('-') ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
