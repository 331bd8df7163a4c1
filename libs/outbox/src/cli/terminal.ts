import { createInterface } from 'node:readline';
import { Injectable } from '@nestjs/common';
import { type ExitCode, exit } from './exit-codes.js';
import type { Failure } from './failure.js';

/** Where a command writes and asks. Answers go to stdout, everything else to stderr, so that a pipe gets answers alone. */
@Injectable()
export class Terminal {
  /** Somebody is there to be asked. */
  readonly interactive: boolean = process.stdin.isTTY === true && process.stderr.isTTY === true;

  print(text: string): void {
    process.stdout.write(`${text}\n`);
  }

  json(value: unknown): void {
    this.print(JSON.stringify(value, null, 2));
  }

  note(text: string): void {
    process.stderr.write(`${text}\n`);
  }

  end(code: ExitCode): void {
    process.exitCode = code;
  }

  /** With --json whoever parses stdout gets the error there as well, whatever went wrong. */
  fail({ exitCode, message }: Failure): void {
    if (message !== '') this.note(message);
    if (exitCode !== exit.done && process.argv.includes('--json')) this.json({ error: { exitCode, message } });
    this.end(exitCode);
  }

  /** Yes or no; no when the input ends or Ctrl-C is typed. */
  ask(question: string): Promise<boolean> {
    const lines = createInterface({ input: process.stdin, output: process.stderr });
    return new Promise((resolve) => {
      lines.on('close', () => resolve(false));
      lines.question(`${question} [y/N] `, (answer) => {
        resolve(/^y(es)?$/i.test(answer.trim()));
        lines.close();
      });
    });
  }
}
