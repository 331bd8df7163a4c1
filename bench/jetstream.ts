import { natsMissing } from 'throwaway-nats';
import { acrossProcesses } from './across.js';
import { bootApp } from './app.js';
import { openBroker, overJetstream, streamName } from './broker.js';
import { type Bench, type Line, line, median, rounds } from './figures.js';
import { fillQueue, handling, plainly, warmUp } from './handle.js';
import { byNotify, perSecond, type Sample } from './latency.js';
import { PlainNats } from './plain-nats.js';
import { withDatabase } from './server.js';

const measurement = 'jetstream';

interface Site {
  readonly url: string;
  readonly nats: PlainNats;
}

/** The broker's part by itself, then the whole way beside the same way over postgres() in the same run. */
export async function measureJetstream(bench: Bench): Promise<Line[]> {
  const broker = await openBroker();
  if (!broker) {
    bench.note(`jetstream is left out: ${natsMissing}`);
    return [];
  }
  try {
    bench.note(`jetstream: nats-server ${broker.version}`);
    const nats = await PlainNats.open(broker.url);
    const site = { url: broker.url, nats };
    const lines = [await relayed(bench, site), await handled(bench, site, 4), await handled(bench, site, 8)];
    lines.push(...(await across(bench, site)));
    await nats.close();
    return lines;
  } finally {
    await broker.stop();
  }
}

/** From the queue to the stream's acknowledgement, by a worker that handles nothing. */
async function relayed(bench: Bench, { url, nats }: Site): Promise<Line> {
  const { events, runs } = bench.options;
  bench.note('jetstream: relay');
  const ours = (database: string) =>
    withStream(nats, async (stream) => {
      await fillQueue(database, events);
      const outbox = { role: 'worker', transport: overJetstream(url, stream) } as const;
      const app = await bootApp({ url: database, outbox });
      const perSecond = await nats.growth(stream, events, warmUp);
      await app.close();
      return perSecond;
    });
  const plain = () =>
    withStream(nats, async (stream) => {
      await nats.publish(stream, events);
      return nats.growth(stream, events, warmUp);
    });
  const figures = await rounds(runs, { ours: () => withDatabase(bench.server, ours), plain });
  return line({
    measurement,
    what: 'rows relayed to JetStream (plain: js.publish)',
    unit: '/s',
    better: 'more',
    ...figures,
  });
}

async function handled(bench: Bench, { url, nats }: Site, lanes: number): Promise<Line> {
  const { events, runs } = bench.options;
  bench.note(`jetstream: handle, ${lanes} at once`);
  const ours = (database: string) =>
    withStream(nats, (stream) => handling(database, events, lanes, overJetstream(url, stream)));
  const figures = await rounds(runs, {
    ours: () => withDatabase(bench.server, ours),
    postgres: () => withDatabase(bench.server, (database) => handling(database, events, lanes)),
    plain: () => withDatabase(bench.server, (database) => plainly(database, events, lanes)),
  });
  const what = `events handled over JetStream, ${lanes} at once`;
  return line({ measurement, what, unit: '/s', better: 'more', ...figures });
}

async function across(bench: Bench, { url, nats }: Site): Promise<Line[]> {
  const seconds = bench.options.seconds ?? 5;
  const ours: Sample[] = [];
  const postgres: Sample[] = [];
  const plain: Sample[] = [];
  for (let round = 0; round < bench.options.runs; round++) {
    bench.note(`jetstream: across, round ${round + 1}`);
    const brokered = (database: string) =>
      withStream(nats, (stream) => acrossProcesses(database, seconds, { servers: url, stream }));
    ours.push(await withDatabase(bench.server, brokered));
    postgres.push(await withDatabase(bench.server, (database) => acrossProcesses(database, seconds)));
    plain.push(await withDatabase(bench.server, (database) => byNotify(database, seconds)));
  }
  return (['p50', 'p99'] as const).map((which) =>
    line({
      measurement,
      what: `commit to handler in another process over JetStream at ${perSecond}/s, ${which}`,
      unit: 'ms',
      better: 'less',
      ours: median(ours.map((sample) => sample[which])),
      postgres: median(postgres.map((sample) => sample[which])),
      plain: median(plain.map((sample) => sample[which])),
    }),
  );
}

async function withStream<T>(nats: PlainNats, work: (stream: string) => Promise<T>): Promise<T> {
  const stream = streamName();
  try {
    return await work(stream);
  } finally {
    await nats.remove(stream);
  }
}
