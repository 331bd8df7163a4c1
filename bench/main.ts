import { measureAcross } from './across.js';
import { type Bench, type Line } from './figures.js';
import { measureHandle } from './handle.js';
import { measureIdle } from './idle.js';
import { measureJetstream } from './jetstream.js';
import { measureLatency } from './latency.js';
import { describeMachine } from './machine.js';
import { type MeasurementName, measurementNames, readOptions } from './options.js';
import { measurePublish } from './publish.js';
import { tableOf } from './report.js';
import { openServer } from './server.js';

/** Measures and does not judge: our figures, the same work in plain pg in the same run, and the ratio. */
const measurements: Readonly<Record<MeasurementName, (bench: Bench) => Promise<Line[]>>> = {
  publish: measurePublish,
  handle: measureHandle,
  latency: measureLatency,
  across: measureAcross,
  idle: measureIdle,
  jetstream: measureJetstream,
};

const options = readOptions(process.argv.slice(2));
const server = await openServer();
try {
  const machine = await describeMachine(server);
  const note = (text: string): void => void process.stderr.write(`${text}\n`);
  const lines: Line[] = [];
  for (const name of measurementNames)
    if (options.only.includes(name)) lines.push(...(await measurements[name]({ server, options, note })));
  process.stdout.write(`${options.json ? JSON.stringify({ machine, options, lines }) : tableOf(machine, lines)}\n`);
} finally {
  await server.stop();
}
