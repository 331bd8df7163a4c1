import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { eventually, gate } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import type { FaultSite } from '../faults/fault-site.js';
import { Broker } from './broker.js';

describeWithNats('odd messages over JetStream', () => {
  let broker: Broker;
  let site: FaultSite;

  beforeEach(async () => {
    ({ broker, site } = await Broker.withSite('2s'));
  });

  afterEach(() => broker?.close(site));

  const boot = (run: (event: OutboxEvent, context: DeliveryContext) => Promise<void>, reconcile?: '1s') => {
    @Injectable()
    class Worker {
      @Subscribe('test.work.asked', 'worker', { backoff: ['3s'] })
      async run(event: OutboxEvent, context: DeliveryContext): Promise<void> {
        await context.manager.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
        await run(event, context);
      }
    }
    return site.app({
      providers: [Worker],
      outbox: {
        transport: broker.transport(),
        handlers: { concurrency: 1 },
        drain: '5s',
        ...(reconcile ? { relay: { reconcile } } : {}),
      },
    });
  };

  it('a header whose name no client takes ends nothing: its message is acknowledged and does not run', async () => {
    const app = await boot(async () => {});
    await broker.publishRaw('test.work.asked', { 'trace id': 'x' });
    const ids = await site.ask({});
    await site.handledOnce(ids);
    await broker.answered();
    expect(app.log.matching(/is no event of an outbox/)).toHaveLength(1);
  });

  it('an event that waits twice (its consumer was made again) is handed back once, and the stop ends', async () => {
    const first = gate();
    const begun = gate();
    const app = await boot(async () => {
      begun.open();
      await first.passed;
    });
    const ids = await site.ask({}, {});
    await begun.passed;
    for (const id of ids) await broker.publish({ id, installation: await installation() });
    await eventually('all four are here', async () => (await broker.consumer()).num_ack_pending === 4);
    const closing = app.close();
    first.open();
    await closing;
    expect(
      await site.database.query('SELECT lease, attempt, interruptions FROM outbox.deliveries ORDER BY event_id'),
    ).toEqual([{ lease: null, attempt: 0, interruptions: 0 }]);
    await boot(async () => {});
    await site.handledOnce(ids);
    await broker.answered();
  });

  it('a look for what was lost waits for no handler', async () => {
    const [second, release] = [gate(), gate()];
    let runs = 0;
    const app = await boot(async () => {
      runs += 1;
      if (runs === 1) throw new Error('once');
      second.open();
      await release.passed;
    }, '1s');
    const ids = await site.ask({});
    // It runs again later than looks keep away from what is new, so that its event lies before where they end.
    await second.passed;
    // The look at everything, as it comes once a day.
    await site.database.query(
      'UPDATE outbox.durables SET verified_to = NULL, verified_all_at = NULL, looked_at = NULL',
    );
    await eventually('a look has gone beyond the event', () =>
      site.database.value<boolean>(
        'SELECT d.verified_to > e.created_at AND d.verified_all_at > e.created_at FROM outbox.durables d, outbox.events e',
      ),
    );
    release.open();
    await site.handledOnce(ids);
    expect(app.log.matching(/outbox\.reconciler/)).toEqual([]);
    expect(app.log.matching(/the broker lost/)).toEqual([]);
  });

  const installation = () => site.database.value<string>('SELECT installation::text FROM outbox.schema_version');
});
