import { type ExitCode, exit } from './exit-codes.js';

/** Ends the command with a message for people, and no stack. */
export class CliError extends Error {
  constructor(
    readonly exitCode: ExitCode,
    message: string,
  ) {
    super(message);
    this.name = 'CliError';
  }
}

export function wrongUsage(message: string): CliError {
  return new CliError(exit.usage, message);
}
