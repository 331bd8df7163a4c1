import { setTimeout as pause } from 'node:timers/promises';
import { expect } from '@jest/globals';
import type { OutboxEvent, OutboxRootOptions } from 'nestjs-outbox';
import { type JetstreamOptions, jetstream } from 'nestjs-outbox/jetstream';
import { startNats, type ThrowawayNats, type ThrowawayNatsOptions } from 'throwaway-nats';
import { eventually } from './eventually.js';
import { effect, nothingIsLeft, type Run, subscriber } from './stage.js';
import { bootApp, type TestApp } from './test-app.js';
import { createDatabase, type TestDatabase } from './test-database.js';

export const asked = 'test.work.asked';

export interface BrokerWorkerOptions {
  /** What its handlers do after they have written their effect. */
  readonly run?: Run<{ n: number }>;
  readonly durables?: readonly string[];
  readonly jetstream?: JetstreamOptions;
  readonly outbox?: OutboxRootOptions;
}

/**
 * A nats-server of a test's own, to be killed, stopped and emptied, with a database and workers on it. Nothing in
 * `effects` is unique, so that whatever is done twice is seen twice.
 */
export class BrokerSite {
  private readonly apps: TestApp[] = [];
  private readonly loads: Promise<void>[] = [];
  private closed = false;

  private constructor(
    readonly server: ThrowawayNats,
    readonly database: TestDatabase,
    /** Only publishes: knows no broker. */
    readonly publisher: TestApp,
  ) {}

  static async open(options: ThrowawayNatsOptions = {}): Promise<BrokerSite> {
    const server = await startNats(options);
    try {
      const database = await createDatabase();
      await database.query('CREATE TABLE effects (event_id uuid, durable text, attempt int, note text, app text)');
      const publisher = await bootApp({
        url: database.url,
        outbox: { role: 'publisher' },
        manifest: { emits: [asked] },
      });
      return new BrokerSite(server, database, publisher);
    } catch (error) {
      await server.stop();
      throw error;
    }
  }

  /** Two durables, with all that waits by design made short. */
  async worker({ run, durables = ['ledger', 'mail'], ...options }: BrokerWorkerOptions = {}): Promise<TestApp> {
    const handle: Run<{ n: number }> = async (event, context) => {
      await effect(event as OutboxEvent, context);
      await run?.(event, context);
    };
    const app = await bootApp({
      url: this.database.url,
      providers: durables.map((durable) => subscriber(asked, durable, handle, { backoff: ['200ms'] })),
      manifest: { emits: [asked] },
      outbox: {
        transport: jetstream({ servers: this.server.url, ackWait: '2s', ...options.jetstream }),
        relay: { reconcile: '1s' },
        drain: '1s',
        ...options.outbox,
      },
    });
    this.apps.push(app);
    return app;
  }

  /** Publishes so many events in one transaction. */
  async publish(count: number): Promise<string[]> {
    const { dataSource, publisher } = this.publisher;
    const events = Array.from({ length: count }, (_, n) => ({ event: asked, payload: { n } }));
    const published = await dataSource.transaction(() => publisher.publishMany(events));
    return published.map(({ id }) => id);
  }

  /** Publishes one event every few milliseconds until it is told to stop; resolves to what was committed. */
  load(everyMs = 15): { readonly count: () => number; stop(): Promise<string[]> } {
    const ids: string[] = [];
    let going = true;
    const loop = (async () => {
      while (going && !this.closed) {
        ids.push((await this.publisher.publisher.publishNow(asked, { n: ids.length })).id);
        await pause(everyMs);
      }
    })();
    this.loads.push(loop.catch(() => {}));
    return {
      count: () => ids.length,
      stop: async () => {
        going = false;
        await loop;
        return ids;
      },
    };
  }

  queued(): Promise<number> {
    return this.database.value('SELECT count(*)::int FROM outbox.queue');
  }

  /** Waits until all of these have left the queue: the broker has them. */
  async forwarded(): Promise<void> {
    await eventually('the queue is empty', async () => (await this.queued()) === 0);
  }

  /** Waits until all are handled by every durable, and checks that each is so exactly once. */
  async handledOnce(ids: readonly string[], withinMs = 90_000, durables = ['ledger', 'mail']): Promise<void> {
    const marks = `SELECT count(*)::int FROM outbox.handled WHERE event_id = ANY ($1::uuid[]) AND verdict = 'd'`;
    await eventually(
      `${ids.length} events are handled`,
      async () => {
        const n = await this.database.value<number>(marks, [ids]);
        if (n !== ids.length * durables.length) throw new Error(`${n} of ${ids.length * durables.length}`);
        return true;
      },
      withinMs,
    );
    expect(
      await this.database.query(
        `SELECT a.id, d.name, count(e.event_id)::int AS effects FROM unnest($1::uuid[]) a(id) CROSS JOIN unnest($2::text[]) d(name)
         LEFT JOIN effects e ON e.event_id = a.id AND e.durable = d.name GROUP BY 1, 2 HAVING count(e.event_id) <> 1`,
        [ids, durables],
      ),
    ).toEqual([]);
    expect(await this.database.value('SELECT count(*)::int FROM effects')).toBe(ids.length * durables.length);
  }

  /** No attempt was charged to anything, nor did a row of the queue pay for the broker. */
  async chargedNothing(): Promise<void> {
    expect(await this.database.query('SELECT * FROM outbox.attempts')).toEqual([]);
    expect(await this.database.query('SELECT * FROM outbox.dead_letters')).toEqual([]);
    expect(await this.database.query('SELECT * FROM outbox.queue WHERE attempts > 0')).toEqual([]);
    expect(await this.database.query('SELECT * FROM effects WHERE attempt > 1')).toEqual([]);
  }

  async close(): Promise<void> {
    this.closed = true;
    await Promise.allSettled(this.loads);
    for (const app of [...this.apps, this.publisher]) await app.close();
    try {
      await nothingIsLeft(this.database);
    } finally {
      await this.database.drop();
      await this.server.stop();
    }
  }
}
