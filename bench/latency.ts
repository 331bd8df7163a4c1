import { bootApp, handlerOf, orderPlaced, payloadOf } from './app.js';
import { insertEvent, PlainPg, placeOrder, statements } from './baseline.js';
import { type Bench, type Line, line, median, pause, percentile } from './figures.js';
import { withDatabase } from './server.js';

const perSecond = 200;
const lanes = 4;
/** Samples of this long at the beginning are left out: connections are opened and code is compiled. */
const warmUpMs = 500;

interface Sample {
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
    await steadily(seconds, async (n) => {
      const { id } = await app.dataSource.transaction(async (manager) => {
        await placeOrder(manager, n);
        return app.publisher.publish(orderPlaced, payloadOf(n));
      });
      watch.committed(id);
    });
    return await watch.sample();
  } finally {
    await app.close();
  }
}

/**
 * The leanest hand-written equal: NOTIFY with the id in the publishing transaction, a listener that gives it to one of
 * four connections, and there BEGIN, the event read and deleted, the mark inserted.
 */
async function byNotify(url: string, seconds: number): Promise<Sample> {
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
    await steadily(seconds, (n) => {
      const lane = n % lanes;
      const turn = (free[lane] ?? Promise.resolve()).then(() => plainPublish(publishers, lane, n, watch));
      free[lane] = turn;
      return turn;
    });
    const sample = await watch.sample();
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

/** Starts `once` so many times a second whatever it takes: a slow moment must not slow the publisher that measures it. */
async function steadily(seconds: number, once: (n: number) => Promise<unknown>): Promise<void> {
  const total = Math.ceil((seconds + warmUpMs / 1_000) * perSecond);
  const begun = performance.now();
  const all: Promise<unknown>[] = [];
  for (let n = 0; n < total; n++) {
    const due = begun + (n * 1_000) / perSecond;
    const early = due - performance.now();
    if (early > 0) await pause(early);
    all.push(once(n));
  }
  await Promise.all(all);
}

/** Pairs the two ends of every event, in whichever order they are told. */
class Stopwatch {
  private readonly commits = new Map<string, number>();
  private readonly starts = new Map<string, number>();

  committed(id: string): void {
    this.commits.set(id, performance.now());
  }

  started(id: string): void {
    if (!this.starts.has(id)) this.starts.set(id, performance.now());
  }

  /** Waits for the handlers of all that was committed. */
  async sample(): Promise<Sample> {
    const until = performance.now() + 30_000;
    while (this.starts.size < this.commits.size) {
      if (performance.now() > until)
        throw new Error(`only ${this.starts.size} of ${this.commits.size} events reached a handler`);
      await pause(20);
    }
    const commits = [...this.commits].slice(Math.floor((warmUpMs / 1_000) * perSecond));
    const waits = commits.map(([id, at]) => (this.starts.get(id) ?? Number.NaN) - at);
    return { p50: percentile(waits, 50), p99: percentile(waits, 99) };
  }
}
