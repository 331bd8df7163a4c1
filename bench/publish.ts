import { bootApp, orderPlaced, payloadOf } from './app.js';
import { PlainPg, PlainTypeorm, placeOrder } from './baseline.js';
import { type Bench, type Line, line, rate, rounds } from './figures.js';
import { withDatabase } from './server.js';

/** Transactions a second that write one domain row and publish one event. Nothing relays or handles meanwhile. */
export async function measurePublish(bench: Bench): Promise<Line[]> {
  const lines: Line[] = [];
  for (const lanes of [1, 8]) {
    bench.note(`publish: ${lanes} at once`);
    lines.push(await withDatabase(bench.server, (url) => publishing(bench, url, lanes)));
  }
  return lines;
}

async function publishing(bench: Bench, url: string, lanes: number): Promise<Line> {
  const seconds = bench.options.seconds ?? 3;
  const app = await bootApp({ url, outbox: { role: 'publisher' } });
  const typeorm = await PlainTypeorm.open(url, 10);
  const plain = await PlainPg.open(url, lanes);
  const publish = (n: number): Promise<unknown> =>
    app.dataSource.transaction(async (manager) => {
      await placeOrder(manager, n);
      await app.publisher.publish(orderPlaced, payloadOf(n));
    });
  try {
    const figures = await rounds(bench.options.runs, {
      ours: () => rate(seconds, lanes, (_, n) => publish(n)),
      plain: () => rate(seconds, lanes, (lane, n) => plain.publish(lane, n)),
      typeorm: () => rate(seconds, lanes, (_, n) => typeorm.publish(n)),
    });
    const what = `transactions with one row and one publish, ${lanes} at once`;
    return line({ measurement: 'publish', what, unit: '/s', better: 'more', ...figures });
  } finally {
    await Promise.all([app.close(), typeorm.close(), plain.close()]);
  }
}
