import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, SnoozeError, Subscribe } from 'nestjs-outbox';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import { FaultSite } from '../faults/fault-site.js';
import { Broker } from './broker.js';

type Work = (context: DeliveryContext, event: OutboxEvent) => Promise<unknown>;

/** First deliveries are messages, which have no row: what comes of one is recorded as for any row, and the message is answered. */
describeWithNats('what came of a message is recorded', () => {
  let broker: Broker;
  let site: FaultSite;

  beforeEach(async () => {
    // Longer than any of these: nothing is put right by a redelivery.
    broker = await Broker.open('30s');
    site = await FaultSite.open();
    await site.database.query('CREATE TABLE late (event_id uuid UNIQUE DEFERRABLE INITIALLY DEFERRED)');
  });

  afterEach(() => broker?.close(site));

  const attempts = () => site.database.query<{ n: number }>('SELECT n, error FROM outbox.attempts ORDER BY n');

  /** Handles one event, whose first run does `work`; returns its id and the attempts that its runs were told. */
  async function handle(work: Work, maxAttempts = 3): Promise<{ id: string; runs: number[] }> {
    const runs: number[] = [];
    @Injectable()
    class Worker {
      @Subscribe('test.work.asked', 'worker', { backoff: ['100ms'], timeout: '500ms', maxAttempts })
      async run(event: OutboxEvent, context: DeliveryContext): Promise<void> {
        runs.push(context.attempt);
        await context.manager.query('INSERT INTO effects (event_id, attempt) VALUES ($1, $2)', [
          event.id,
          context.attempt,
        ]);
        if (runs.length === 1) await work(context, event);
      }
    }
    await site.app({ providers: [Worker], outbox: { drain: '1s', transport: broker.transport() } });
    const id = await site.askOne({});
    await eventually('there is a verdict', () => site.database.value('SELECT count(*)::int FROM outbox.handled'));
    await broker.answered();
    expect((await broker.consumer()).num_redelivered).toBe(0);
    return { id, runs };
  }

  /** COMMIT is refused: the same key twice, which is looked at when all is done. */
  const refusedAtCommit: Work = async ({ manager }, { id }) => {
    await manager.query('INSERT INTO late VALUES ($1), ($1)', [id]);
  };

  it.each<[string, Work, RegExp]>([
    ['that fails', () => Promise.reject(new Error('asked to fail')), /^Error: asked to fail/],
    ['whose SQL fails', ({ manager }) => manager.query('SELECT 1 / 0'), /division by zero/],
    ['whose COMMIT is refused', refusedAtCommit, /duplicate key/],
    ['that takes too long', ({ manager }) => manager.query('SELECT pg_sleep(60)'), /^HandlerTimeoutError/],
  ])('of a handler %s: one attempt, and the next one succeeds', async (_, work, error) => {
    const { id, runs } = await handle(work);
    await site.handledOnce([id]);
    expect(runs).toEqual([1, 2]);
    expect(await attempts()).toEqual([{ n: 1, error: expect.stringMatching(error) }]);
    expect(await site.interruptions()).toEqual({});
    expect(await site.database.query('SELECT attempt FROM effects')).toEqual([{ attempt: 2 }]);
  });

  it.each<[string, Work, RegExp]>([
    ['fails', () => Promise.reject(new Error('asked to fail')), /^Error: asked to fail/],
    ['has its COMMIT refused', refusedAtCommit, /duplicate key/],
    ['takes too long', ({ manager }) => manager.query('SELECT pg_sleep(60)'), /^HandlerTimeoutError/],
  ])('of a handler that %s at its last attempt: a dead letter', async (_, work, error) => {
    const { id, runs } = await handle(work, 1);
    expect(await site.database.query('SELECT event_id, attempts, error FROM outbox.dead_letters')).toEqual([
      { event_id: id, attempts: 1, error: expect.stringMatching(error) },
    ]);
    expect(await site.database.value('SELECT verdict::text FROM outbox.handled')).toBe('x');
    expect(await site.database.query('SELECT attempt FROM effects')).toEqual([]);
    expect(runs).toEqual([1]);
  });

  it('of a handler whose connection is ended: one interruption, no attempt', async () => {
    const { id, runs } = await handle(async ({ manager }) => {
      const [{ pid }] = await manager.query('SELECT pg_backend_pid() AS pid');
      await site.database.query('SELECT pg_terminate_backend($1)', [pid]);
      await manager.query('SELECT 1');
    });
    await site.handledOnce([id]);
    expect(runs).toEqual([1, 1]);
    expect(await attempts()).toEqual([]);
    expect(await site.interruptions()).toEqual({ [id]: 1 });
  });

  it('of a handler that wants to be called later: neither', async () => {
    const { id, runs } = await handle(() => Promise.reject(new SnoozeError('100ms', 'not yet')));
    await site.handledOnce([id]);
    expect(runs).toEqual([1, 1]);
    expect(await attempts()).toEqual([]);
    expect(await site.interruptions()).toEqual({});
  });

  it('of one that a lock keeps from being claimed: neither, and it is tried again in a few seconds', async () => {
    const id = await site.askOne({});
    await site.database.query('BEGIN');
    await site.database.query(
      `INSERT INTO outbox.handled (bucket, event_id, durable, verdict, attempts, worker) SELECT outbox.bucket($1), $1, 1, 'd', 1, 0`,
      [id],
    );
    const held = site.database.query('SELECT pg_sleep(2.5)').then(() => site.database.query('ROLLBACK'));
    const runs: number[] = [];
    @Injectable()
    class Worker {
      @Subscribe('test.work.asked', 'worker', { from: 'beginning' })
      async run(event: OutboxEvent, context: DeliveryContext): Promise<void> {
        runs.push(context.attempt);
        await context.manager.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
      }
    }
    await site.app({ providers: [Worker], outbox: { drain: '1s', transport: broker.transport() } });
    await held;
    await site.handledOnce([id]);
    expect(runs).toEqual([1]);
    expect(await site.interruptions()).toEqual({});
    await broker.answered();
  });
});
