import 'reflect-metadata';
import { fileURLToPath } from 'node:url';
import { readArguments, usage } from './demo/arguments.js';
import { DemoError, wordsOf } from './demo/demo-error.js';
import { runLive } from './demo/live.js';
import { runOnce } from './demo/once.js';
import { servePostgres } from './demo/postgres-process.js';
import { work } from './demo/worker-process.js';

const main = fileURLToPath(import.meta.url);
/** A second Ctrl-C this long after the first one stops waiting. A shell may send the first one twice. */
const patienceMs = 2_000;

/** One signal stops the demo in order. */
function stopSignal(): AbortSignal {
  const stop = new AbortController();
  let first = 0;
  const onSignal = (): void => {
    if (!stop.signal.aborted) {
      first = performance.now();
      stop.abort();
    } else if (performance.now() - first > patienceMs) process.exit(130);
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, onSignal);
  return stop.signal;
}

async function demo(): Promise<number> {
  try {
    const options = readArguments(process.argv.slice(2));
    if (options.help) {
      console.log(usage);
      return 0;
    }
    const signal = stopSignal();
    if (!options.once) {
      await runLive(main, options, signal);
      return 0;
    }
    const result = await runOnce(main, options, signal);
    console.log(JSON.stringify(result));
    return result.ok ? 0 : 1;
  } catch (error) {
    console.error(`demo: ${wordsOf(error)}`);
    return error instanceof DemoError ? error.exitCode : 1;
  }
}

// The demo's other processes are forks of this file.
switch (process.env['OUTBOX_DEMO_PROCESS']) {
  case 'postgres':
    await servePostgres();
    break;
  case 'worker':
    await work();
    break;
  default:
    process.exitCode = await demo();
}
