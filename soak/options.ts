import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { type SoakTransport, transports } from './plan.js';

export interface SoakOptions {
  /** How long events are published and faults happen; draining comes on top. */
  readonly minutes: number;
  /** The fault plan and what each event asks of its handlers follow from it. */
  readonly seed: number;
  /** Of both publishers together. */
  readonly eventsPerSecond: number;
  /** What carries first deliveries; a broker is then among what faults happen to. */
  readonly transport: SoakTransport;
  /** Somebody pauses, resumes, cancels, retries, discards, sends again and looks all the time. */
  readonly operator: boolean;
  /** Warnings and errors of the processes, on stderr. */
  readonly verbose: boolean;
}

export const usage =
  'npm run soak -- [--transport postgres|jetstream] [--minutes n] [--seed n] [--events-per-second n] [--operator] [--verbose]';

export function readOptions(args: readonly string[]): SoakOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      minutes: { type: 'string', default: '1' },
      seed: { type: 'string' },
      transport: { type: 'string', default: 'postgres' },
      'events-per-second': { type: 'string', default: '40' },
      operator: { type: 'boolean', default: false },
      verbose: { type: 'boolean', default: false },
    },
  });
  return {
    minutes: positive('--minutes', values.minutes),
    seed: values.seed === undefined ? randomInt(2 ** 32) : wholeNumber('--seed', values.seed),
    eventsPerSecond: positive('--events-per-second', values['events-per-second']),
    transport: transportOf(values.transport),
    operator: values.operator,
    verbose: values.verbose,
  };
}

function transportOf(name: string): SoakTransport {
  const transport = transports.find((one) => one === name);
  if (!transport) throw new Error(`--transport must be ${transports.join(' or ')}\n${usage}`);
  return transport;
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
