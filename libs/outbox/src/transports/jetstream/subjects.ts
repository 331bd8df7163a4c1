/** `module.entity.verb`, as the server may see it: a bad subject ends the whole connection (a blank, CR) or is stored as a pattern. */
const typePattern = /^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*){2}$/;
const longest = 128;

/** The subject of an event type; `undefined` when it is none that can be sent. */
export function subjectOf(prefix: string, type: string): string | undefined {
  return isType(type) ? `${prefix}.${type}` : undefined;
}

/** The event type of a subject under `prefix`; `undefined` when it is foreign. */
export function typeOf(prefix: string, subject: string): string | undefined {
  if (!subject.startsWith(`${prefix}.`)) return undefined;
  const type = subject.slice(prefix.length + 1);
  return isType(type) ? type : undefined;
}

/** The pattern of types behind a filter of ours; `undefined` when it is none. */
export function patternOf(prefix: string, filter: string): string | undefined {
  const pattern = filter.slice(prefix.length + 1);
  return filter.startsWith(`${prefix}.`) && pattern.split('.').length === 3 && !pattern.includes('>')
    ? pattern
    : undefined;
}

/** Whether every subject that `narrow` stands for is one of `wide`; `*` is one token, `>` one or more at the end. */
export function subjectCovers(wide: string, narrow: string): boolean {
  const [want, have] = [wide.split('.'), narrow.split('.')];
  if (want.at(-1) === '>')
    return have.length >= want.length && want.slice(0, -1).every((token, i) => fits(token, have[i]));
  return want.length === have.length && want.every((token, i) => fits(token, have[i]));
}

/** Whether there is a subject that both stand for. */
export function subjectsMeet(one: string, other: string): boolean {
  const [a, b] = [one.split('.'), other.split('.')];
  for (let i = 0; ; i++) {
    if (a[i] === undefined || b[i] === undefined) return a[i] === b[i];
    if (a[i] === '>' || b[i] === '>') return true;
    if (a[i] !== '*' && b[i] !== '*' && a[i] !== b[i]) return false;
  }
}

/** Subjects for several types and patterns, none of which covers another: the server refuses overlapping filters. */
export function filtersOf(prefix: string, patterns: readonly string[]): string[] {
  const distinct = [...new Set(patterns)];
  const kept = distinct.filter((one) => !distinct.some((other) => other !== one && subjectCovers(other, one)));
  const disjoint = kept.every((one, i) => kept.slice(i + 1).every((other) => !subjectsMeet(one, other)));
  return (disjoint ? kept : [merged(kept)]).map((pattern) => `${prefix}.${pattern}`).toSorted();
}

/** The one subject that covers them all, for servers that take one filter: what else it brings is acknowledged unrun. */
export function filterOf(prefix: string, patterns: readonly string[]): string {
  return `${prefix}.${merged(patterns)}`;
}

function merged(patterns: readonly string[]): string {
  const [first = '*.*.*', ...rest] = patterns;
  return first
    .split('.')
    .map((token, i) => (rest.every((other) => other.split('.')[i] === token) ? token : '*'))
    .join('.');
}

function isType(text: string): boolean {
  return text.length <= longest && typePattern.test(text);
}

function fits(wide: string, narrow: string | undefined): boolean {
  return narrow !== '>' && (wide === '*' || wide === narrow);
}
