import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { bootApp, orderPlaced, payloadOf } from './app.js';
import { placeOrder } from './baseline.js';
import { type Bench, type Line, line, median } from './figures.js';
import { byNotify, perSecond, type Sample, sampleOf, steadyFor } from './latency.js';
import { withDatabase } from './server.js';
import { Stopwatch } from './steady.js';

/**
 * The same from a publisher in one process to the handler in another, as with an API and a worker apart. The handler's
 * process tells when it began by a message, so the way of that message is in the figure, some tenths of a millisecond.
 */
export async function measureAcross(bench: Bench): Promise<Line[]> {
  const seconds = bench.options.seconds ?? 5;
  const ours: Sample[] = [];
  const plain: Sample[] = [];
  for (let round = 0; round < bench.options.runs; round++) {
    bench.note(`across: round ${round + 1}`);
    ours.push(await withDatabase(bench.server, (url) => acrossProcesses(url, seconds)));
    plain.push(await withDatabase(bench.server, (url) => byNotify(url, seconds)));
  }
  return (['p50', 'p99'] as const).map((which) =>
    line({
      measurement: 'across',
      what: `commit to handler in another process at ${perSecond}/s, ${which}`,
      unit: 'ms',
      better: 'less',
      ours: median(ours.map((sample) => sample[which])),
      plain: median(plain.map((sample) => sample[which])),
    }),
  );
}

/** Where the events go by a broker; without it they go by postgres(). */
export interface Way {
  readonly servers: string;
  readonly stream: string;
}

export async function acrossProcesses(url: string, seconds: number, way?: Way): Promise<Sample> {
  const watch = new Stopwatch();
  const worker = await startWorker([url, ...(way ? [way.servers, way.stream] : [])], (id) => watch.started(id));
  const app = await bootApp({ url, outbox: { role: 'publisher' } });
  try {
    await steadyFor(seconds, async (n) => {
      const { id } = await app.dataSource.transaction(async (manager) => {
        await placeOrder(manager, n);
        return app.publisher.publish(orderPlaced, payloadOf(n));
      });
      watch.committed(id);
    });
    return await sampleOf(watch);
  } finally {
    await app.close();
    worker.disconnect();
    await once(worker, 'exit');
  }
}

async function startWorker(args: readonly string[], started: (eventId: string) => void): Promise<ChildProcess> {
  const worker = fork(fileURLToPath(new URL('across-worker.js', import.meta.url)), [...args]);
  await new Promise<void>((resolve, reject) => {
    worker.once('exit', (code) => reject(new Error(`the worker process ended with ${code}`)));
    worker.on('message', (told) => (told === 'ready' ? resolve() : started(String(told))));
  });
  return worker;
}
