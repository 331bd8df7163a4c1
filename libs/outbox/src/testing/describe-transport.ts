import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import type { TransportCapabilities, TransportFactory } from '../core/transport.js';
import { until } from './probe-app.js';
import { ProbeSite, slowMs, type TestApi, type TransportSetup } from './probe-site.js';

/**
 * The transport's contract as behaviour, with real concurrency: several apps, several connections, lost connections.
 * An adapter's own spec is one call of it. What a transport cannot do is said in `capabilities`, and tested as such.
 */
export function describeTransport(
  name: string,
  /** Called for each app; `run` names the test, for a broker that several tests share. */
  makeTransport: (run: string) => TransportFactory,
  capabilities: TransportCapabilities,
  setup: TransportSetup,
  api: TestApi = globalThis as unknown as TestApi,
): void {
  api.describe(`transport ${name}`, () => {
    const bench = new Bench(makeTransport, setup);
    api.beforeEach(() => bench.open());
    api.afterEach(() => bench.close());
    const test = (what: string, body: (bench: Bench) => Promise<void>): void => api.it(what, () => body(bench), slowMs);
    test('declares its capabilities', async () =>
      assert.deepEqual(makeTransport('declares').capabilities, capabilities));
    deliverySuite(test);
    loadSuite(test);
    faultSuite(test);
    if (capabilities.processes === 'many') fleetSuite(test);
    else test('refuses a second live worker', refusesSecondWorker);
  });
}

type Test = (what: string, body: (bench: Bench) => Promise<void>) => void;

function deliverySuite(test: Test): void {
  test('delivers each event once to each durable', async (bench) => {
    const app = await bench.app('a', { durables: ['one', 'two'] });
    await app.publish(numbers(50));
    await bench.effects(100);
    await bench.exactlyOnce(50, ['one', 'two']);
  });

  test('delivers what was published while no worker lived', async (bench) => {
    const first = await bench.app('a', { durables: ['one'] });
    await bench.shut(first);
    const publisher = await bench.app('p', { durables: [], role: 'publisher' });
    await publisher.publish(numbers(20));
    await bench.app('b', { durables: ['one'] });
    await bench.effects(20);
    await bench.exactlyOnce(20, ['one']);
  });

  test('delivers again what a handler failed, to its durable alone', async (bench) => {
    let failures = 0;
    const app = await bench.app('a', {
      durables: ['one', 'two'],
      handle: async (_, context) => {
        if (context.durable === 'one' && failures++ < 3) throw new Error('not yet');
      },
    });
    await app.publish([1]);
    await bench.effects(2);
    await bench.exactlyOnce(1, ['one', 'two']);
    assert.equal(failures, 4);
  });

  test('delivers nothing of a transaction that rolled back', async (bench) => {
    const app = await bench.app('a', { durables: ['one'] });
    const rolledBack = app.dataSource.transaction(async () => {
      await app.publisher.publish('conformance.probe.sent', { n: 1 });
      throw new Error('rolled back');
    });
    await assert.rejects(rolledBack, /rolled back/);
    await app.publish([2]);
    await bench.effects(1);
    assert.deepEqual(await bench.column('SELECT n FROM conformance_effects'), [2]);
  });

  test('a stop loses nothing: what was not started waits', async (bench) => {
    const app = await bench.app('a', { durables: ['one'], concurrency: 1, handle: () => pause(20) });
    await app.publish(numbers(60));
    await bench.effects(1);
    await bench.shut(app);
    await bench.app('b', { durables: ['one'] });
    await bench.effects(60);
    await bench.exactlyOnce(60, ['one']);
  });
}

function loadSuite(test: Test): void {
  test('keeps to the handlers at once, however much waits', async (bench) => {
    const app = await bench.app('a', { durables: ['one', 'two'], concurrency: 3, handle: () => pause(2) });
    await app.publish(numbers(400));
    await bench.effects(800);
    await bench.exactlyOnce(400, ['one', 'two']);
    assert.equal(app.most(), 3);
  });

  test('a durable with a backlog does not hold up another', async (bench) => {
    const begun = { slow: 0, quick: 0 };
    let behind = 0;
    await bench
      .app('a', {
        durables: ['slow', 'quick'],
        concurrency: 2,
        handle: async (_, { durable }) => {
          begun[durable as keyof typeof begun] += 1;
          if (durable === 'slow') await pause(50);
          else behind = Math.max(behind, begun.slow - begun.quick);
        },
      })
      .then((app) => app.publish(numbers(60)));
    await bench.effects(120);
    assert.ok(behind < 30, `${behind} of the slow durable had begun before one of the quick one`);
  });

  test('takes events from many publishers at once', async (bench) => {
    const app = await bench.app('a', { durables: ['one'] });
    const publisher = await bench.app('p', { durables: [], role: 'publisher' });
    const batches = Array.from({ length: 40 }, (_, i) => numbers(10).map((n) => i * 10 + n));
    await Promise.all(batches.map((batch, i) => (i % 2 ? app : publisher).publish(batch)));
    await bench.effects(400);
    await bench.exactlyOnce(400, ['one']);
  });
}

function faultSuite(test: Test): void {
  test("loses and repeats nothing when the library's connections are cut again and again", async (bench) => {
    const app = await bench.app('a', { durables: ['one', 'two'], handle: () => pause(1) });
    const cut = bench.repeatedly(() => bench.terminate("application_name LIKE 'nestjs-outbox %'"), 150);
    for (let i = 0; i < 20; i++) await app.publish(numbers(25).map((n) => i * 25 + n));
    await bench.effects(1_000);
    await cut.stop();
    await bench.exactlyOnce(500, ['one', 'two']);
  });

  test("loses and repeats nothing when handlers' connections are cut", async (bench) => {
    const app = await bench.app('a', { durables: ['one'], handle: () => pause(5) });
    await app.publish(numbers(200));
    await bench.effects(5);
    const cut = bench.repeatedly(() => bench.terminate("state = 'idle in transaction'"), 100);
    await pause(350);
    await cut.stop();
    await bench.effects(200);
    await bench.exactlyOnce(200, ['one']);
  });
}

function fleetSuite(test: Test): void {
  test('shares a durable among processes, each event to one of them', async (bench) => {
    const apps = await Promise.all(
      ['a', 'b', 'c'].map((name) => bench.app(name, { durables: ['one'], concurrency: 2, handle: () => pause(2) })),
    );
    await Promise.all(apps.map((app, i) => app.publish(numbers(200).map((n) => i * 200 + n))));
    await bench.effects(600);
    await bench.exactlyOnce(600, ['one']);
    assert.ok((await bench.column('SELECT DISTINCT app FROM conformance_effects')).length > 1);
  });

  test('brings events to the durables of other processes', async (bench) => {
    const a = await bench.app('a', { durables: ['one'] });
    await bench.app('b', { durables: ['two'] });
    await a.publish(numbers(50));
    await bench.effects(100);
    await bench.exactlyOnce(50, ['one', 'two']);
    assert.deepEqual(await bench.column("SELECT DISTINCT app FROM conformance_effects WHERE durable = 'two'"), ['b']);
  });

  test('what a process held when it was cut off runs elsewhere', async (bench) => {
    const stuck = await bench.app('stuck', {
      durables: ['one'],
      concurrency: 1,
      handle: () => pause(60_000, undefined, { ref: false }),
    });
    await stuck.publish(numbers(30));
    await until(
      'it has begun',
      async () =>
        (
          await bench.column(
            "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()",
          )
        ).length > 0,
    );
    await bench.app('other', { durables: ['one'] });
    const cut = bench.repeatedly(
      () => bench.terminate("application_name LIKE 'nestjs-outbox worker%' OR state = 'idle in transaction'"),
      400,
    );
    await bench.effects(30);
    await cut.stop();
    await bench.exactlyOnce(30, ['one']);
  });
}

async function refusesSecondWorker(bench: Bench): Promise<void> {
  await bench.app('a', { durables: ['one'] });
  await assert.rejects(bench.app('b', { durables: ['two'] }), /exactly one process/);
}

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}

/** One test's database and apps, with what its handlers committed. */
class Bench extends ProbeSite {
  override async open(): Promise<void> {
    await super.open();
    await this.column('CREATE TABLE conformance_effects (event_id uuid, durable text, n int, app text)');
  }

  async count(where = ''): Promise<number> {
    return Number((await this.column(`SELECT count(*) FROM conformance_effects ${where}`))[0]);
  }

  /** Given up when their number has not changed for long: a busy machine takes its time for hundreds. */
  async effects(count: number): Promise<void> {
    for (let seen = 0; seen < count; ) {
      const before = seen;
      await until(`more than ${before} of ${count} effects`, async () => {
        seen = await this.count();
        return seen > before;
      });
    }
  }

  /** Every event has one effect per durable, and nothing is left to do. */
  async exactlyOnce(events: number, durables: readonly string[]): Promise<void> {
    await until(
      'nothing is left to do',
      async () =>
        (await this.column('SELECT 1 FROM outbox.queue UNION ALL SELECT 1 FROM outbox.deliveries')).length === 0,
    );
    const rows = await this.column('SELECT count(*) FROM conformance_effects GROUP BY event_id, durable');
    assert.equal(rows.length, events * durables.length);
    assert.deepEqual([...new Set(rows.map(Number))], [1]);
  }
}
