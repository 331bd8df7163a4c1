import { closest, distance } from 'fastest-levenshtein';

/** All of `known`, what is most like `name` first. */
export function nearestFirst(name: string, known: Iterable<string>): string[] {
  return [...known]
    .map((each) => ({ each, far: distance(name, each) }))
    .toSorted((a, b) => a.far - b.far || (a.each < b.each ? -1 : 1))
    .map(({ each }) => each);
}

/** ` — did you mean 'x'?` when one of `known` is close enough to be what was meant, else an empty string. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const candidates = [...known];
  if (candidates.length === 0) return '';
  const best = closest(name, candidates);
  return distance(name, best) <= Math.max(2, Math.floor(best.length / 3)) ? ` — did you mean '${best}'?` : '';
}
