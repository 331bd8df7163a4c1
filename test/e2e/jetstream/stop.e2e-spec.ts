import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { backends, FaultSite, holdTable } from '../faults/fault-site.js';
import { Broker } from './broker.js';

@Injectable()
class Work {
  @Subscribe('test.work.asked', 'worker')
  async run(event: OutboxEvent, context: DeliveryContext): Promise<void> {
    await context.manager.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
  }
}

/** Far less than `ack_wait`: nothing here is given again by the broker. */
const promptMs = 8_000;

describeWithNats('a clean stop over JetStream', () => {
  let broker: Broker;
  let site: FaultSite;

  beforeEach(async () => {
    ({ broker, site } = await Broker.withSite('30s'));
  });

  afterEach(() => broker?.close(site));

  const fourAndFour = (worker: WorkerProcess) =>
    eventually('four run and four wait in memory', async () => {
      return worker.begun === 4 && (await broker.consumer()).num_ack_pending === 8;
    });

  it('hands back what waited, uncharged: it runs elsewhere while the old handlers still run', async () => {
    const first = await site.worker({ HOLD: 'on' });
    const ids = await site.ask(...Array.from({ length: 8 }, () => ({ hold: true })));
    await fourAndFour(first);
    const second = await site.worker();
    first.signal('SIGTERM');
    await eventually('four run elsewhere', () => second.begun === 4, promptMs);
    expect(first.running).toBe(true);
    first.go();
    await first.gone();
    expect(first.child.signalCode).toBe('SIGTERM');
    await site.handledOnce(ids);
    expect(await site.runs()).toEqual(Object.fromEntries(ids.map((id) => [id, 1])));
    expect(await site.interruptions()).toEqual({});
    await broker.answered('worker', promptMs);
  });

  it('that cuts off handlers: they are uncharged, run elsewhere at once, and no message is left unanswered', async () => {
    const first = await site.worker({ HOLD: 'on', DRAIN: '500ms' });
    const ids = await site.ask(...Array.from({ length: 8 }, () => ({ hold: true })));
    await fourAndFour(first);
    await first.stop();
    expect((await broker.consumer()).num_ack_pending).toBe(0);
    expect(await site.database.query('SELECT DISTINCT attempt, interruptions, lease FROM outbox.deliveries')).toEqual([
      { attempt: 0, interruptions: 0, lease: null },
    ]);
    await site.worker();
    await site.handledOnce(ids);
    expect(await site.interruptions()).toEqual({});
    expect(await site.attemptsCharged()).toBe(0);
    expect((await broker.consumer()).num_redelivered).toBe(0);
  });

  it('of an idle worker is over within a second, and messages that come next are not lost to it', async () => {
    const first = await site.worker();
    await site.handledOnce([await site.askOne({})]);
    await broker.answered();
    // In order, so that it is the stop that is measured and not the end of what runs.
    const begin = performance.now();
    await first.stop();
    const stopMs = performance.now() - begin;
    console.log(`an idle worker was gone ${Math.round(stopMs)} ms after SIGTERM`);
    expect(stopMs).toBeLessThan(1_500);
    const ids = await site.ask({}, {}, {});
    await site.worker();
    await site.handledOnce(ids);
    expect(await site.interruptions()).toEqual({});
  });

  it('while messages are on their way to it: they are handed back, uncharged, and none is left unanswered', async () => {
    const network = await TcpProxy.before(broker.url);
    try {
      const app = await site.app({
        providers: [Work],
        outbox: { transport: broker.transport({ servers: network.url }), handlers: { concurrency: 4 } },
      });
      await eventually('it asks', async () => (await broker.consumer()).num_waiting === 1);
      // As many as it has room for: it then asks for more, and from there on it hears nothing.
      network.holdAnswersTo('CONSUMER.MSG.NEXT');
      const before = await site.ask(...Array.from({ length: 8 }, () => ({})));
      await site.handledOnce(before);
      await eventually('it hears nothing', () => network.holds);
      const ids = await site.ask({}, {}, {});
      await eventually('they were given to it', async () => (await broker.consumer()).num_ack_pending === 3);
      const closed = app.close();
      await eventually('it asks no more', async () => (await broker.consumer()).num_waiting === 0);
      // It also waits until they are written, and answers for them after that.
      const rows = await holdTable(site.database, 'outbox.deliveries');
      network.letGo();
      await backends(site.database, 'nestjs-outbox records', `wait_event_type = 'Lock'`);
      await rows.release();
      await closed;
      expect((await broker.consumer()).num_ack_pending).toBe(0);
      await site.worker();
      await site.handledOnce(ids);
      expect(await site.interruptions()).toEqual({});
      expect((await broker.consumer()).num_redelivered).toBe(0);
    } finally {
      await network.close();
    }
  });

  it('under load, one worker after the other: no message is lost on its way, nothing is charged', async () => {
    await site.worker();
    const ids: string[] = [];
    let going = true;
    const load = (async () => {
      while (going) {
        ids.push(...(await site.ask({}, {})));
        await pause(20);
      }
    })();
    for (let i = 0; i < 3; i++) {
      const worker = await site.worker();
      await worker.started();
      await worker.stop();
    }
    going = false;
    await load;
    await site.handledOnce(ids);
    // Not given again, which would take `ack_wait`.
    await broker.answered('worker', promptMs);
    expect((await broker.consumer()).num_redelivered).toBe(0);
    expect(await site.interruptions()).toEqual({});
    expect(await site.attemptsCharged()).toBe(0);
    for (const n of Object.values(await site.runs())) expect(n).toBe(1);
  });
});
