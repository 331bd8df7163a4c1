import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { eventually, gate, reaches } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import type { FaultSite } from '../faults/fault-site.js';
import { Broker } from './broker.js';

describeWithNats('slots over JetStream', () => {
  let broker: Broker;
  let site: FaultSite;

  beforeEach(async () => {
    ({ broker, site } = await Broker.withSite('2s'));
  });

  afterEach(() => broker?.close(site));

  it('what waits behind a stuck slot for longer than `ack_wait` is handed back, and runs elsewhere, uncharged', async () => {
    const stuck = gate();
    const begun: string[] = [];
    @Injectable()
    class Stuck {
      @Subscribe('test.work.asked', 'worker')
      async run(event: OutboxEvent, context: DeliveryContext): Promise<void> {
        begun.push(event.id);
        await context.manager.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
        await stuck.passed;
      }
    }
    const outbox = { transport: broker.transport(), handlers: { concurrency: 1 } } as const;
    await site.app({ providers: [Stuck], outbox });
    const ids = await site.ask({}, {});
    const given = performance.now();
    await eventually('one runs and one waits', async () => {
      return begun.length === 1 && (await broker.consumer()).num_ack_pending === 2;
    });
    const waiting = ids.filter((id) => !begun.includes(id));
    const other = await site.worker();
    await other.started(waiting[0]);
    const elsewhereMs = Math.round(performance.now() - given);
    console.log(`behind a stuck slot: ran elsewhere ${elsewhereMs} ms after it was given, with ack_wait 2 s`);
    await site.handledOnce(waiting);
    // The one that runs keeps its message, however long it takes.
    expect((await broker.consumer()).num_ack_pending).toBe(1);
    stuck.open();
    await site.handledOnce(ids);
    await broker.answered();
    expect(begun).toHaveLength(1);
    expect(await site.interruptions()).toEqual({});
    expect(await site.attemptsCharged()).toBe(0);
  });

  it('messages and rows together never run more handlers than there are slots, and each durable gets its turn', async () => {
    let [running, most] = [0, 0];
    const order: string[] = [];
    const failed = new Set<string>();
    async function work(event: OutboxEvent<{ fail?: boolean }>, context: DeliveryContext): Promise<void> {
      most = Math.max(most, ++running);
      try {
        await pause(5);
        const key = `${context.durable} ${event.id}`;
        if (event.payload.fail && !failed.has(key)) {
          failed.add(key);
          throw new Error('asked to fail');
        }
        order.push(context.durable);
        await context.manager.query('INSERT INTO effects (event_id, durable) VALUES ($1, $2)', [
          event.id,
          context.durable,
        ]);
      } finally {
        running--;
      }
    }
    const options = { backoff: ['100ms'] } as const;
    @Injectable()
    class Handlers {
      @Subscribe(['test.work.asked', 'test.more.asked'], 'busy', options)
      busy(event: OutboxEvent<{ fail?: boolean }>, context: DeliveryContext) {
        return work(event, context);
      }

      @Subscribe('test.work.asked', 'mail', options)
      mail(event: OutboxEvent<{ fail?: boolean }>, context: DeliveryContext) {
        return work(event, context);
      }

      @Subscribe('test.work.asked', 'audit', options)
      audit(event: OutboxEvent<{ fail?: boolean }>, context: DeliveryContext) {
        return work(event, context);
      }
    }
    const app = await site.app({
      providers: [Handlers],
      manifest: { emits: ['test.work.asked', 'test.more.asked'] },
      outbox: { transport: broker.transport(), handlers: { concurrency: 3 } },
    });
    await app.dataSource.transaction(() =>
      app.publisher.publishMany([
        ...Array.from({ length: 300 }, (_, i) => ({ event: 'test.more.asked', payload: { fail: i % 3 === 0 } })),
        ...Array.from({ length: 60 }, (_, i) => ({ event: 'test.work.asked', payload: { fail: i % 3 === 0 } })),
      ]),
    );
    const effects = () => site.database.value<number>('SELECT count(*)::int FROM effects');
    await reaches('effects', 300 + 3 * 60, effects);
    expect(most).toBe(3);
    // The first 300 of one durable do not go before the others' 60.
    const last = (durable: string) => order.lastIndexOf(durable);
    expect(last('mail')).toBeLessThan(300);
    expect(last('audit')).toBeLessThan(300);
    expect(order).toHaveLength(480);
    expect(await site.attemptsCharged()).toBe(failed.size);
    await Promise.all(['busy', 'mail', 'audit'].map((durable) => broker.answered(durable)));
    expect(await effects()).toBe(480);
  });
});
