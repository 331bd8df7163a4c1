import { randomUUID } from 'node:crypto';
import type { TransportFactory } from 'nestjs-outbox';
import { type BenchApp, bootApp, handlerOf, orderPlaced, payloadOf } from './app.js';
import { PlainPg, PlainTypeorm, writeEffect } from './baseline.js';
import { type Bench, type Line, line, rounds } from './figures.js';
import { withClient, withDatabase } from './server.js';

const durable = 'effects';
/** This part of every backlog warms the caches and the compiler, and is not counted. */
export const warmUp = 0.1;

/** Events a second from the queue to the committed effect of a handler that writes one row: relay, hand-over, claim, commit. */
export async function measureHandle(bench: Bench): Promise<Line[]> {
  const lines: Line[] = [];
  for (const lanes of [1, 4, 8]) {
    bench.note(`handle: ${lanes} at once`);
    const figures = await rounds(bench.options.runs, {
      ours: () => withDatabase(bench.server, (url) => handling(url, bench.options.events, lanes)),
      plain: () => withDatabase(bench.server, (url) => plainly(url, bench.options.events, lanes)),
      typeorm: () => withDatabase(bench.server, (url) => byTypeorm(url, bench.options.events, lanes)),
    });
    const what = `events handled, one row each, ${lanes} at once`;
    lines.push(line({ measurement: 'handle', what, unit: '/s', better: 'more', ...figures }));
  }
  return lines;
}

export async function handling(
  url: string,
  events: number,
  lanes: number,
  transport?: TransportFactory,
): Promise<number> {
  await backlog(url, events, transport);
  const pace = new Pace(events);
  const app = await bootWorker(url, lanes, { pace, transport });
  try {
    await pace.done;
  } finally {
    await app.close();
  }
  const effects = await withClient(url, async (client) => (await client.query('SELECT FROM effects')).rowCount);
  if (effects !== events) throw new Error(`${events} events left ${effects} effects`);
  return pace.perSecond;
}

interface WorkerOptions {
  readonly pace?: Pace;
  readonly transport?: TransportFactory | undefined;
}

function bootWorker(url: string, lanes: number, { pace, transport }: WorkerOptions): Promise<BenchApp> {
  const handler = handlerOf(durable, (event, ctx) => {
    pace?.step();
    return writeEffect(ctx.manager, event.id);
  });
  const outbox = { handlers: { concurrency: lanes }, ...(transport ? { transport } : {}) };
  return bootApp({ url, poolSize: lanes + 2, providers: [handler], outbox });
}

/** Registers the durable, then publishes with no worker alive. */
async function backlog(url: string, events: number, transport?: TransportFactory): Promise<void> {
  await (await bootWorker(url, 1, { transport })).close();
  await fillQueue(url, events);
}

/** All events wait in the queue. */
export async function fillQueue(url: string, events: number): Promise<void> {
  const app = await bootApp({ url, outbox: { role: 'publisher' } });
  for (let from = 0; from < events; from += 500) {
    const list = Array.from({ length: Math.min(500, events - from) }, (_, i) => ({
      event: orderPlaced,
      payload: payloadOf(from + i),
    }));
    await app.dataSource.transaction(() => app.publisher.publishMany(list));
  }
  await app.close();
  await settleTables(url);
}

export async function plainly(url: string, events: number, lanes: number): Promise<number> {
  await settleTables(url);
  const plain = await PlainPg.open(url, lanes);
  try {
    return await lanesOver(events, lanes, (lane, id) => plain.handle(lane, id));
  } finally {
    await plain.close();
  }
}

async function byTypeorm(url: string, events: number, lanes: number): Promise<number> {
  await settleTables(url);
  const typeorm = await PlainTypeorm.open(url, lanes);
  try {
    return await lanesOver(events, lanes, (_, id) => typeorm.handle(id));
  } finally {
    await typeorm.close();
  }
}

async function lanesOver(
  events: number,
  lanes: number,
  handle: (lane: number, eventId: string) => Promise<void>,
): Promise<number> {
  const ids = Array.from({ length: events }, () => randomUUID());
  const pace = new Pace(events);
  const loop = async (lane: number): Promise<void> => {
    for (let id = ids.pop(); id !== undefined; id = ids.pop()) {
      pace.step();
      await handle(lane, id);
    }
  };
  await Promise.all(Array.from({ length: lanes }, (_, lane) => loop(lane)));
  return pace.perSecond;
}

/** A checkpoint of an earlier run must not fall into this one. */
async function settleTables(url: string): Promise<void> {
  await withClient(url, (client) => client.query('CHECKPOINT'));
}

/** From the start of the first run after the warm-up to the start of the last: as many began as ended in between. */
class Pace {
  readonly done: Promise<void>;
  private finish = (): void => {};
  private count = 0;
  private from = 0;
  private to = 0;
  private readonly skipped: number;

  constructor(private readonly events: number) {
    this.skipped = Math.max(1, Math.floor(events * warmUp));
    this.done = new Promise((resolve) => {
      this.finish = resolve;
    });
  }

  step(): void {
    this.count += 1;
    if (this.count === this.skipped) this.from = performance.now();
    if (this.count < this.events) return;
    this.to = performance.now();
    this.finish();
  }

  get perSecond(): number {
    return ((this.events - this.skipped) * 1_000) / (this.to - this.from);
  }
}
