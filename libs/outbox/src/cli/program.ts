import { readFileSync } from 'node:fs';
import { CommandFactory } from 'nest-commander';
import { CliModule } from './cli.module.js';
import { failureOf } from './failure.js';
import { Terminal } from './terminal.js';

/** Parses `process.argv` and runs one command; leaves its outcome in `process.exitCode`. Never rejects. */
export async function run(): Promise<void> {
  const terminal = new Terminal();
  const fail = (error: Error): void => terminal.fail(failureOf(error));
  try {
    await CommandFactory.run(CliModule, {
      logger: false,
      abortOnError: false,
      version: version(),
      serviceErrorHandler: fail,
      // Commander would end the process in the middle; thrown, it comes to the handler above.
      errorHandler: (error) => {
        throw error;
      },
    });
  } catch (error) {
    fail(error as Error);
  }
}

function version(): string {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
  return String(version);
}
