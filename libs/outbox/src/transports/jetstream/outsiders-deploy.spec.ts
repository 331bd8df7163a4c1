import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '../../../../../test/support/eventually.js';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { effect, subscriber, useStage } from '../../../../../test/support/stage.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import { useBroker } from './broker.fixture.js';
import { jetstream } from './jetstream.transport.js';

const [paid, voided] = ['billing.invoice.paid', 'billing.invoice.voided'];

describeWithNats('a service that handles events of another database', () => {
  const broker = useBroker();
  const [billing, crm] = [useStage(), useStage()];
  const stream = broker.name();
  const outbox = () => ({
    transport: jetstream({ servers: natsUrl(), stream, prefix: stream, ackWait: '1s' }),
    schema: { onStart: 'migrate' as const },
    relay: { poll: '50ms' as const, reconcile: '20d' as const },
  });
  const pod = (name: string, durable: string, accepts: string[]) =>
    crm.boot({
      manifest: { accepts },
      providers: [subscriber(accepts as never, durable, (event, context) => effect(event, context, event.type, name))],
      outbox: outbox(),
    });
  const handled = async (durable: string, app?: string) => {
    const rows = await crm.database.query<{ event_id: string }>(
      'SELECT event_id FROM effects WHERE durable = $1 AND ($2::text IS NULL OR app = $2) ORDER BY event_id',
      [durable, app ?? null],
    );
    return rows.map((row) => row.event_id);
  };

  it('accepts a further type in a rolling deploy: the old version leaves it to the new one, none is lost or handled twice', async () => {
    const durable = 'crm-deploy';
    const publisher = await billing.boot({ manifest: { emits: [paid, voided] }, outbox: outbox() });
    const old = await pod('old', durable, [paid]);
    const ids: string[] = [];
    const publish = async (n: number, ...types: string[]) => {
      for (let i = 0; i < n; i++, await pause(5))
        for (const type of types) ids.push((await publisher.publisher.publishNow(type, {})).id);
    };
    await publish(20, paid);
    const next = await pod('new', durable, [paid, voided]);
    await publish(100, paid, voided);
    // As if the half minute had passed for which a version leaves a row alone whose type it does not know.
    const halfMinute = () => crm.database.query('UPDATE outbox.deliveries SET due_at = now() WHERE lease IS NULL');
    const all = async () => {
      await halfMinute();
      await pause(100);
      return handled(durable);
    };
    await eventually('all are handled', async () => (await all()).length >= ids.length, 30_000);
    expect(await handled(durable)).toEqual(ids.toSorted());
    expect((await handled(durable, 'old')).length).toBeGreaterThan(10);
    expect(await crm.database.value('SELECT count(*)::int FROM outbox.dead_letters')).toBe(0);
    await Promise.all([old.close(), next.close(), publisher.close()]);
  });

  it('whose consumer was lost gets it again from where its types began: no database has what it missed', async () => {
    const durable = 'crm-lost';
    await (await pod('first', durable, [paid])).close();
    await crm.database.query(
      `UPDATE outbox.durable_types SET since = now() - interval '1 day' WHERE durable = (SELECT id FROM outbox.durables WHERE name = $1)`,
      [durable],
    );
    const app = await pod('second', durable, [paid]);
    await broker.manager.consumers.delete(stream, durable);
    const made = await eventually('it is there again', async () => {
      const info = await broker.manager.consumers.info(stream, durable).catch(() => undefined);
      return info?.config.opt_start_time;
    });
    const day = 24 * 60 * 60_000;
    expect(Date.now() - new Date(made).getTime()).toBeGreaterThan(day);
    await app.close();
  });
});
