/** Something the user of the demo can mend: shown as one line, without a stack. */
export class DemoError extends Error {
  constructor(
    message: string,
    readonly exitCode = 1,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The words of any error; a refused connection to a name with two addresses has them one level down. */
export function wordsOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.map(wordsOf).join('; ');
  return error instanceof Error ? error.message || error.name : String(error);
}
