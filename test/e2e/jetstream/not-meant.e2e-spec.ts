import { Durables } from 'nestjs-outbox';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import type { FaultSite } from '../faults/fault-site.js';
import { Broker } from './broker.js';

describeWithNats('a message that is not meant, first or again, is answered and runs nothing', () => {
  let broker: Broker;
  let site: FaultSite;
  let installation: string;

  beforeEach(async () => {
    ({ broker, site } = await Broker.withSite('1s'));
    // The durable is registered and its consumer made; nobody listens.
    await (await site.worker()).stop();
    installation = await site.database.value('SELECT installation::text FROM outbox.schema_version');
  });

  afterEach(() => broker?.close(site));

  /** Two messages for an event, of which somebody was given the first and has not answered. */
  async function twoMessages(id: string): Promise<void> {
    await broker.publish({ id, installation });
    await broker.takeAndDrop();
    await broker.publish({ id, installation });
  }

  async function nothingRuns(): Promise<void> {
    await broker.answered();
    expect(await site.runs()).toEqual({});
    expect(await site.interruptions()).toEqual({});
    expect(await site.database.query('TABLE outbox.deliveries')).toEqual([]);
    expect(await site.database.query('TABLE outbox.handled')).toEqual([]);
  }

  it('of an event that is older than the durable', async () => {
    const id = await site.askOne({});
    await site.database.query('UPDATE outbox.durable_types SET since = clock_timestamp()');
    await twoMessages(id);
    await site.worker();
    await eventually('the queue is empty', async () => (await site.database.query('TABLE outbox.queue')).length === 0);
    expect(await broker.messages()).toBe(3);
    await nothingRuns();
  });

  it('of an event that was forgotten', async () => {
    const id = await site.askOne({});
    await site.database.query('DELETE FROM outbox.queue');
    await site.database.query('DELETE FROM outbox.events');
    await twoMessages(id);
    const worker = await site.worker();
    await nothingRuns();
    expect(
      worker.said({ kind: 'log', text: new RegExp(`a message names event ${id}, of which there is no row`) }),
    ).toBe(true);
  });

  it('of an event that was handled', async () => {
    const first = await site.worker();
    const id = await site.askOne({});
    await site.handledOnce([id]);
    await first.stop();
    await twoMessages(id);
    await site.worker();
    await broker.answered();
    expect(await site.runs()).toEqual({ [id]: 1 });
    expect(await site.interruptions()).toEqual({});
    expect(await site.database.query('TABLE outbox.deliveries')).toEqual([]);
  });

  it('of a durable that was retired, whose code is still there', async () => {
    const before = await site.worker();
    await eventually('the reconciler has seen it', () =>
      site.database.value('SELECT verified_to FROM outbox.durables'),
    );
    await before.stop();
    const id = await site.askOne({});
    await site.database.query(`UPDATE outbox.durables SET seen_at = seen_at - interval '1 hour'`);
    await site.publisher.app.get(Durables).retire('worker');
    await twoMessages(id);
    const worker = await site.worker();
    await eventually('the queue is empty', async () => (await site.database.query('TABLE outbox.queue')).length === 0);
    // Nothing is kept for it: the reconciler has its consumer removed.
    await eventually('its consumer is gone', async () => (await broker.consumers()).length === 0);
    expect(worker.running).toBe(true);
    expect(await site.runs()).toEqual({});
    expect(await site.interruptions()).toEqual({});
    expect(await site.database.query('TABLE outbox.deliveries')).toEqual([]);
  });
});
