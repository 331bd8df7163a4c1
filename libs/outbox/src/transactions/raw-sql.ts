const comments = /\/\*[\s\S]*?\*\/|--[^\n]*/g;
const literals = /'(?:[^']|'')*'/g;
const begins = /^[\s(]*(?:select|show|values|table)\b/i;
const writes = /\b(?:into|insert|update|delete|merge|for\s+(?:no\s+key\s+update|update|share|key\s+share))\b/i;
const calls = /([a-z_][\w$.]*)\s*\(/gi;
/** What stands before a parenthesis in a plain query and changes nothing. */
const harmless = new Set(
  `and any all array as avg between by bool_and bool_or case cast coalesce count current_setting date_trunc distinct
  else except exists extract filter from greatest having in intersect is join json_agg jsonb_agg json_build_object
  jsonb_build_object lateral least length limit lower max min not now nullif on or order over partition round row
  row_number select some string_agg substring sum then to_char trim union upper using values varchar numeric when where
  with`.split(/\s+/),
);

/**
 * Whether a statement surely only reads. A function it calls may write, so one that is not known counts as a write:
 * the answer is used to let a statement pass unseen.
 */
export function onlyReads(sql: unknown): boolean {
  if (typeof sql !== 'string') return false;
  const text = sql.replace(comments, ' ').replace(literals, "''");
  if (!begins.test(text) || writes.test(text)) return false;
  return [...text.matchAll(calls)].every(([, name = '']) => harmless.has(name.toLowerCase()));
}
