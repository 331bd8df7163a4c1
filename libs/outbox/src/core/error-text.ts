/** Stored error texts are cut to this many bytes of UTF-8 (design, section 4). */
export const errorTextBytes = 8 * 1024;

/**
 * What an error says, fit to be stored: Postgres refuses NUL and lone surrogates, and a failure whose text cannot be
 * stored would be a failure that cannot be recorded.
 */
export function errorText(error: unknown, limitBytes = errorTextBytes): string {
  const text = describe(error).replaceAll('\u0000', '\u2400').toWellFormed();
  if (Buffer.byteLength(text) <= limitBytes) return text;
  const cut = Buffer.from(text).subarray(0, limitBytes - 3);
  return `${new TextDecoder('utf-8').decode(cut).replace(/\uFFFD+$/, '')}…`;
}

function describe(error: unknown): string {
  try {
    // A stack need not be a string: Error.prepareStackTrace may make anything of it.
    if (error instanceof Error) return String(withCause(error));
    return typeof error === 'string' ? error : `thrown: ${JSON.stringify(error) ?? String(error)}`;
  } catch {
    return 'an error that cannot be read (its own properties throw)';
  }
}

function withCause(error: Error): string {
  if (error instanceof AggregateError)
    return [`${error.name}: ${error.message}`, ...error.errors.map(withStackOfCause)].join('\n');
  const own = error.stack?.includes(error.message) ? error.stack : `${error.name}: ${error.message}`;
  const cause = error.cause;
  if (cause === undefined || cause === error) return own;
  return `${own}\ncaused by ${cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause)}`;
}

/** Of errors that were joined the stacks are those of whoever joined them; what went wrong is in their causes. */
function withStackOfCause(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  return error instanceof Error && cause instanceof Error ? `${error.message}\n${describe(cause)}` : describe(error);
}
