import { parseArgs } from 'node:util';
import { DemoError } from './demo-error.js';

export interface DemoArguments {
  readonly help: boolean;
  /** Runs to the end and reports, instead of staying up. */
  readonly once: boolean;
  readonly events: number;
  /** Publishes this file's lines instead of invoices of its own. */
  readonly input: string | undefined;
  /** Whole processes that handle; 0: the one that publishes handles, too. */
  readonly workers: number;
  readonly kill: boolean;
  /** The workers are of two kinds, which handle different durables. */
  readonly services: boolean;
  /** What carries first deliveries. */
  readonly transport: DemoTransport;
}

const transports = ['postgres', 'jetstream'] as const;
export type DemoTransport = (typeof transports)[number];

export const usage = `npm run demo -- [options]

  without options     an app that stays up: a trickle of invoices, periodic jobs, a live summary, HTTP, until Ctrl-C
  --once              runs to the end, and until each job has run for two slots; the last line of stdout is one JSON
                      object, the exit code 0 only if nothing was lost, nothing was done twice, each slot of a job was
                      run to its end by one process at a time, and one tenant failed, as it should, and nobody else
  --events N          how many events --once publishes (default 500)
  --input FILE        publishes the lines of FILE: {"type": ..., "tenant": ..., "payload": ...}
  --workers N         N whole worker processes on one database; this one publishes and counts
  --transport NAME    what carries first deliveries: postgres (default), or jetstream, on a nats-server that is started in a
                      temporary folder and removed at the end (the one of the PATH, of Debian's package, or NATS_SERVER_BIN)
  --kill              SIGKILLs a random worker every second and replaces it, as long as another one is up (needs --workers);
                      nats-server, too, is SIGKILLed and started again: halfway with --once, otherwise every 20 seconds
  --services          the workers are two services of one image: every other one handles the ledger and the receipts alone,
                      the rest all but those (needs --workers 2 or more)
  --help

DATABASE_URL names the database; without it a Postgres is started in a temporary folder and removed at the end.`;

const defaultEvents = 500;

export function readArguments(argv: readonly string[]): DemoArguments {
  const values = parsed(argv);
  const { once = false, kill = false, services = false, help = false, input } = values;
  const transport = transportOf(values.transport ?? 'postgres');
  const workers = wholeNumber('--workers', values.workers, 1, 32) ?? 0;
  if (kill && workers === 0)
    throw misused('--kill needs --workers N: the process that publishes and counts is not killed');
  if (services && workers < 2) throw misused('--services needs --workers N with N of 2 or more: one of each kind');
  if (values.events !== undefined && !once)
    throw misused('--events needs --once: without it the demo publishes until it is stopped');
  if (values.events !== undefined && input !== undefined)
    throw misused('--events and --input exclude each other: the file says how many events there are');
  return {
    help,
    once,
    kill,
    services,
    input,
    workers,
    transport,
    events: wholeNumber('--events', values.events, 1, 1_000_000) ?? defaultEvents,
  };
}

function parsed(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: false,
      options: {
        once: { type: 'boolean' },
        events: { type: 'string' },
        input: { type: 'string' },
        workers: { type: 'string' },
        kill: { type: 'boolean' },
        services: { type: 'boolean' },
        transport: { type: 'string' },
        help: { type: 'boolean' },
      },
    }).values;
  } catch (error) {
    throw misused((error as Error).message.split('. ')[0] ?? '');
  }
}

function transportOf(name: string): DemoTransport {
  const transport = transports.find((one) => one === name);
  if (!transport) throw misused(`--transport is '${name}'; it is ${transports.join(' or ')}`);
  return transport;
}

function wholeNumber(option: string, text: string | undefined, least: number, most: number): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  throw misused(`${option} is '${text}'; it is a whole number from ${least} to ${most}`);
}

function misused(message: string): DemoError {
  return new DemoError(`${message} (--help shows the options)`, 2);
}
