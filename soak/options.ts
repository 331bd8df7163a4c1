import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';

export interface SoakOptions {
  /** How long events are published and faults happen; draining comes on top. */
  readonly minutes: number;
  /** The fault plan and what each event asks of its handlers follow from it. */
  readonly seed: number;
  /** Of both publishers together. */
  readonly eventsPerSecond: number;
  /** Warnings and errors of the processes, on stderr. */
  readonly verbose: boolean;
}

export const usage = 'npm run soak -- [--minutes n] [--seed n] [--events-per-second n] [--verbose]';

export function readOptions(args: readonly string[]): SoakOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      minutes: { type: 'string', default: '1' },
      seed: { type: 'string' },
      'events-per-second': { type: 'string', default: '40' },
      verbose: { type: 'boolean', default: false },
    },
  });
  return {
    minutes: positive('--minutes', values.minutes),
    seed: values.seed === undefined ? randomInt(2 ** 32) : wholeNumber('--seed', values.seed),
    eventsPerSecond: positive('--events-per-second', values['events-per-second']),
    verbose: values.verbose,
  };
}

function positive(option: string, text: string): number {
  const value = Number(text);
  if (!(value > 0 && Number.isFinite(value))) throw new Error(`${option} must be a number above 0\n${usage}`);
  return value;
}

function wholeNumber(option: string, text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value >= 2 ** 32) throw new Error(`${option} must be a whole number below 2^32\n${usage}`);
  return value;
}
