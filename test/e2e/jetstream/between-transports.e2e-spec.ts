import { randomUUID } from 'node:crypto';
import { postgres } from 'nestjs-outbox';
import { jetstream } from 'nestjs-outbox/jetstream';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import { effect, subscriber, useStage } from '../../support/stage.js';
import type { TestApp } from '../../support/test-app.js';
import { natsUrl } from '../../support/test-database.js';

describeWithNats('from one transport to another and back', () => {
  const stage = useStage();
  const name = `between-${randomUUID().slice(0, 8)}`;
  const manifest = { emits: ['test.work.asked'] };
  const providers = [subscriber('test.work.asked', 'ledger', effect)];
  const schema = { onStart: 'migrate' } as const;
  const overJetstream = (reconcile: '1h' | '1s', handlers = {}) =>
    stage.boot({
      manifest,
      providers,
      outbox: {
        schema,
        handlers,
        relay: { reconcile },
        transport: jetstream({ servers: natsUrl(), stream: name, prefix: name }),
      },
    });
  const overPostgres = (reconcile: '1s' | '5s') =>
    stage.boot({ manifest, providers, outbox: { schema, relay: { reconcile }, transport: postgres() } });
  const handled = (...ids: string[]) =>
    eventually(
      'each is handled once',
      async () => {
        const rows = await stage.database.query<{ id: string }>('SELECT event_id::text AS id FROM effects');
        expect(
          rows
            .map(({ id }) => id)
            .filter((id) => ids.includes(id))
            .sort(),
        ).toEqual([...ids].sort());
        return true;
      },
      20_000,
    );

  it('what was published to the stream just before the last of its workers ended, a worker without a broker finds', async () => {
    // It relays, and nobody handles.
    const before = await overJetstream('1h', { except: ['ledger'] });
    await eventually('no look is due any more', () =>
      stage.database.value<boolean>(
        `SELECT looked_at < clock_timestamp() - interval '4.5 seconds' FROM outbox.durables WHERE name = 'ledger'`,
      ),
    );
    const { id } = await before.publisher.publishNow('test.work.asked', {});
    await eventually('it left the queue', () => stage.database.value('SELECT NOT EXISTS (SELECT 1 FROM outbox.queue)'));
    expect(await stage.database.query('SELECT * FROM outbox.deliveries')).toEqual([]);
    await before.close();
    const after = await overPostgres('5s');
    await handled(id);

    // It goes on looking, and ends with a look at everything when no worker with a broker has looked so for two days.
    const watermark = () =>
      stage.database.value<string | null>(`SELECT verified_to::text FROM outbox.durables WHERE name = 'ledger'`);
    const first = await watermark();
    expect(first).not.toBeNull();
    await eventually('it looks again', async () => (await watermark()) !== first, 20_000);
    await stage.database.query(`UPDATE outbox.durables SET verified_all_at = now() - interval '49 hours'`);
    await eventually('it looks no more', async () => (await watermark()) === null, 20_000);
    await after.close();
  });

  it('side by side on one database, as in a rolling deploy, they lose nothing and repeat nothing', async () => {
    const ids: string[] = [];
    const publishOn = async (app: TestApp): Promise<void> => {
      for (let i = 0; i < 20; i++) ids.push((await app.publisher.publishNow('test.work.asked', { i })).id);
    };
    const without = await overPostgres('1s');
    await publishOn(without);
    const withBroker = await overJetstream('1s');
    await Promise.all([publishOn(without), publishOn(withBroker)]);
    await without.close();
    await publishOn(withBroker);
    const back = await overPostgres('1s');
    await Promise.all([publishOn(withBroker), publishOn(back)]);
    await withBroker.close();
    await publishOn(back);
    await handled(...ids);
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.attempts')).toBe(0);
    await back.close();
  });
});
