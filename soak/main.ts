import 'reflect-metadata';
import { fileURLToPath } from 'node:url';
import { operate } from './operator.js';
import { readOptions } from './options.js';
import { publish } from './publisher.js';
import type { SoakTask } from './reports.js';
import { work } from './worker.js';

const main = fileURLToPath(import.meta.url);

function task(): SoakTask {
  const { SOAK_URL = '', SOAK_NATS, SOAK_SEED, SOAK_INDEX, SOAK_RATE } = process.env;
  // The one that started it is gone: what runs here is nobody's any more.
  process.on('disconnect', () => process.exit(1));
  // Ctrl-C goes to the whole group; who started it ends it.
  process.on('SIGINT', () => {});
  return {
    url: SOAK_URL,
    natsUrl: SOAK_NATS || undefined,
    seed: Number(SOAK_SEED),
    index: Number(SOAK_INDEX),
    eventsPerSecond: Number(SOAK_RATE),
  };
}

async function coordinate(): Promise<void> {
  const options = readOptions(process.argv.slice(2));
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  // Imported here alone: the package of the server takes the signals of the process it is loaded into.
  const { soak } = await import('./soak.js');
  const result = await soak(main, options, stop.signal).catch((error: unknown) => {
    process.stderr.write(`soak: ${stop.signal.aborted ? 'stopped before the end' : (error as Error).stack}\n`);
    process.exit(stop.signal.aborted ? 130 : 1);
  });
  // That package also ends a process that has nothing more to do with 0, whatever its `exitCode` says.
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(result.ok ? 0 : 1));
}

// The other processes are forks of this file.
switch (process.env['SOAK_PROCESS']) {
  case 'worker':
    await work(task());
    break;
  case 'publisher':
    await publish(task());
    break;
  case 'operator':
    await operate(task());
    break;
  default:
    await coordinate();
}
