import { bootApp, handlerOf, orderPlaced, payloadOf } from './app.js';
import { insertEvent, PlainPg, placeOrder, statements } from './baseline.js';
import { type Bench, type Line, line, median, percentile } from './figures.js';
import { withDatabase } from './server.js';
import { Stopwatch, steadily } from './steady.js';

export const perSecond = 200;
const lanes = 4;
/** Samples of this long at the beginning are left out: connections are opened and code is compiled. */
const warmUpMs = 500;

export interface Sample {
  readonly p50: number;
  readonly p99: number;
}

/**
 * From the moment the publisher's COMMIT resolved to the first line of the handler, which then has its transaction, its
 * mark and its event. Publisher and handler share the process, as they do in an application of role `all`.
 */
export async function measureLatency(bench: Bench): Promise<Line[]> {
  const seconds = bench.options.seconds ?? 5;
  const ours: Sample[] = [];
  const plain: Sample[] = [];
  for (let round = 0; round < bench.options.runs; round++) {
    bench.note(`latency: round ${round + 1}`);
    ours.push(await withDatabase(bench.server, (url) => byOutbox(url, seconds)));
    plain.push(await withDatabase(bench.server, (url) => byNotify(url, seconds)));
  }
  return (['p50', 'p99'] as const).map((which) =>
    line({
      measurement: 'latency',
      what: `commit to handler at ${perSecond}/s, ${which}`,
      unit: 'ms',
      better: 'less',
      ours: median(ours.map((sample) => sample[which])),
      plain: median(plain.map((sample) => sample[which])),
    }),
  );
}

async function byOutbox(url: string, seconds: number): Promise<Sample> {
  const watch = new Stopwatch();
  const handler = handlerOf('effects', (event, ctx) => {
    watch.started(event.id);
    return ctx.manager.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
  });
  const app = await bootApp({ url, providers: [handler], outbox: { handlers: { concurrency: lanes } } });
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
  }
}

/**
 * The leanest hand-written equal: NOTIFY with the id in the publishing transaction, a listener that gives it to one of
 * four connections, and there BEGIN, the event read and deleted, the mark inserted.
 */
export async function byNotify(url: string, seconds: number): Promise<Sample> {
  const watch = new Stopwatch();
  const publishers = await PlainPg.open(url, lanes);
  const workers = await PlainPg.open(url, lanes);
  const listeners = await PlainPg.open(url, 1);
  let turn = 0;
  const busy: Promise<void>[] = Array.from({ length: lanes }, () => Promise.resolve());
  listeners.lane(0).on('notification', ({ payload = '' }) => {
    const lane = turn++ % lanes;
    busy[lane] = (busy[lane] ?? Promise.resolve()).then(() => plainHandler(workers, lane, payload, watch));
  });
  try {
    await listeners.lane(0).query('LISTEN bench');
    const free: Promise<void>[] = Array.from({ length: lanes }, () => Promise.resolve());
    await steadyFor(seconds, (n) => {
      const lane = n % lanes;
      const turn = (free[lane] ?? Promise.resolve()).then(() => plainPublish(publishers, lane, n, watch));
      free[lane] = turn;
      return turn;
    });
    const sample = await sampleOf(watch);
    await Promise.all(busy);
    return sample;
  } finally {
    await Promise.all([publishers.close(), workers.close(), listeners.close()]);
  }
}

async function plainPublish(publishers: PlainPg, lane: number, n: number, watch: Stopwatch): Promise<void> {
  const client = publishers.lane(lane);
  await client.query('BEGIN');
  await client.query(statements.order(n));
  const id = await insertEvent(client, n);
  await client.query({ name: 'notify', text: "SELECT pg_notify('bench', $1)", values: [id] });
  await client.query('COMMIT');
  watch.committed(id);
}

async function plainHandler(workers: PlainPg, lane: number, id: string, watch: Stopwatch): Promise<void> {
  const client = workers.lane(lane);
  await client.query('BEGIN');
  await client.query({ name: 'take', text: 'DELETE FROM plain_outbox WHERE id = $1 RETURNING *', values: [id] });
  await client.query(statements.mark(id));
  watch.started(id);
  await client.query(statements.effect(id));
  await client.query('COMMIT');
}

export function steadyFor(seconds: number, once: (n: number) => Promise<unknown>): Promise<void> {
  const total = Math.ceil((seconds + warmUpMs / 1_000) * perSecond);
  return steadily(perSecond, (n) => n < total, once);
}

export async function sampleOf(watch: Stopwatch): Promise<Sample> {
  const timed = (await watch.all()).slice(Math.floor((warmUpMs / 1_000) * perSecond));
  const waits = timed.map(({ wait }) => wait);
  return { p50: percentile(waits, 50), p99: percentile(waits, 99) };
}
