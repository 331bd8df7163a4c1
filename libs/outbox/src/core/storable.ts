/** Whether Postgres takes it, as text and within JSON: it holds neither NUL nor half a pair of surrogates. */
export function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}
