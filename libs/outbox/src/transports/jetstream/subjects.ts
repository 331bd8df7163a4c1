/** `module.entity.verb`, as the server may see it: a bad subject ends the whole connection (a blank, CR) or is stored as a pattern. */
const typePattern = /^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*){2}$/;
const longest = 128;

/** The subject of an event type; `undefined` when it is none that can be sent. */
export function subjectOf(prefix: string, type: string): string | undefined {
  return type.length <= longest && typePattern.test(type) ? `${prefix}.${type}` : undefined;
}

/** The event type of a subject under `prefix`; `undefined` when it is foreign. */
export function typeOf(prefix: string, subject: string): string | undefined {
  if (!subject.startsWith(`${prefix}.`)) return undefined;
  const type = subject.slice(prefix.length + 1);
  return typePattern.test(type) ? type : undefined;
}

/** Subjects for several types and patterns, none of which covers another: the server refuses overlapping filters. */
export function filtersOf(prefix: string, patterns: readonly string[]): string[] {
  const distinct = [...new Set(patterns)];
  const kept = distinct.filter((one) => !distinct.some((other) => other !== one && covers(other, one)));
  const disjoint = kept.every((one, i) => kept.slice(i + 1).every((other) => !overlap(one, other)));
  return (disjoint ? kept : [merged(kept)]).map((pattern) => `${prefix}.${pattern}`).toSorted();
}

/** The one subject that covers them all, for servers that take one filter: what else it brings is acknowledged unrun. */
export function filterOf(prefix: string, patterns: readonly string[]): string {
  return `${prefix}.${merged(patterns)}`;
}

/** Whether one of the patterns covers a type; `*` stands for one token. */
export function coversType(patterns: readonly string[], type: string): boolean {
  return patterns.some((pattern) => covers(pattern, type));
}

function merged(patterns: readonly string[]): string {
  const [first = '*.*.*', ...rest] = patterns;
  return first
    .split('.')
    .map((token, i) => (rest.every((other) => other.split('.')[i] === token) ? token : '*'))
    .join('.');
}

function covers(wide: string, narrow: string): boolean {
  const tokens = narrow.split('.');
  return wide.split('.').every((token, i) => token === '*' || token === tokens[i]);
}

function overlap(one: string, other: string): boolean {
  const tokens = other.split('.');
  return one.split('.').every((token, i) => token === '*' || tokens[i] === '*' || token === tokens[i]);
}
