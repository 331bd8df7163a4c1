import { parseArgs } from 'node:util';

export const measurementNames = ['publish', 'handle', 'latency', 'across', 'idle', 'jetstream'] as const;
export type MeasurementName = (typeof measurementNames)[number];

export interface BenchOptions {
  /** How long each timed run lasts, its warm-up apart; the idle one lasts this long too. */
  readonly seconds: number | undefined;
  /** The backlog of each handling run. */
  readonly events: number;
  /** Each figure is the median of so many runs. */
  readonly runs: number;
  readonly only: readonly MeasurementName[];
  /** One JSON object on stdout in place of the table. */
  readonly json: boolean;
}

export const usage = `npm run bench -- [--seconds n] [--events n] [--runs n] [--only ${measurementNames.join('|')}]… [--json]`;

export function readOptions(args: readonly string[]): BenchOptions {
  const { values } = parseArgs({
    args: [...args],
    options: {
      seconds: { type: 'string' },
      events: { type: 'string', default: '6000' },
      runs: { type: 'string', default: '3' },
      only: { type: 'string', multiple: true, default: [] },
      json: { type: 'boolean', default: false },
    },
  });
  const only = values.only.flatMap((names) => names.split(','));
  return {
    seconds: values.seconds === undefined ? undefined : positive('--seconds', values.seconds),
    events: Math.ceil(positive('--events', values.events)),
    runs: Math.ceil(positive('--runs', values.runs)),
    only: only.length === 0 ? measurementNames : only.map(measurementName),
    json: values.json,
  };
}

function positive(option: string, text: string): number {
  const value = Number(text);
  if (!(value > 0 && Number.isFinite(value))) throw new Error(`${option} must be a number above 0\n${usage}`);
  return value;
}

function measurementName(text: string): MeasurementName {
  const name = measurementNames.find((known) => known === text);
  if (!name) throw new Error(`--only must be one of ${measurementNames.join(', ')}, not '${text}'\n${usage}`);
  return name;
}
