import { closest, distance } from 'fastest-levenshtein';

/** ` — did you mean 'x'?` when one of `known` is close enough to be what was meant, else an empty string. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const candidates = [...known];
  if (candidates.length === 0) return '';
  const best = closest(name, candidates);
  return distance(name, best) <= Math.max(2, Math.floor(best.length / 3)) ? ` — did you mean '${best}'?` : '';
}
