import { execFile } from 'node:child_process';
import { join } from 'node:path';

/** The built command line. */
export const cliMain = join(process.cwd(), 'libs/outbox/dist/cli/main.js');

export interface CliRun {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  /** stdout, parsed. */
  readonly json: <T = Record<string, unknown>>() => T;
}

export interface CliOptions {
  /** DATABASE_URL; none when it is left out. */
  readonly url?: string;
  readonly cwd?: string;
  /** Another copy of the command line. */
  readonly main?: string;
}

/** Runs a command as a process of its own, without a terminal. */
export function cli(args: readonly string[], { url, cwd, main = cliMain }: CliOptions = {}): Promise<CliRun> {
  const { DATABASE_URL: _, ...rest } = process.env;
  const env = url === undefined ? rest : { ...rest, DATABASE_URL: url };
  return new Promise((resolve) => {
    execFile(process.execPath, [main, ...args], { env, cwd }, (error, out, err) => {
      const code = error ? (typeof error.code === 'number' ? error.code : -1) : 0;
      resolve({ code, out, err, json: () => JSON.parse(out) });
    });
  });
}
