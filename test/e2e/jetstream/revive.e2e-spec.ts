import { Durables } from 'nestjs-outbox';
import { jetstream } from 'nestjs-outbox/jetstream';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import { effect, subscriber, useStage } from '../../support/stage.js';
import { natsUrl } from '../../support/test-database.js';

const asked = 'test.work.asked';

describeWithNats('a durable that is revived over JetStream', () => {
  const stage = useStage();
  const boot = () => {
    const stream = new URL(stage.database.url).pathname.slice(1);
    return stage.boot({
      manifest: { emits: [asked] },
      providers: ['ledger', 'mail'].map((durable) => subscriber(asked, durable, effect)),
      outbox: {
        schema: { onStart: 'migrate' },
        transport: jetstream({ servers: natsUrl(), stream, prefix: stream }),
      },
    });
  };
  const handled = async (id: string) => {
    const rows = await stage.database.query<{ durable: string }>('SELECT durable FROM effects WHERE event_id = $1', [
      id,
    ]);
    return rows.map(({ durable }) => durable).toSorted();
  };

  it('gets what is published from then on within seconds, also from workers that started while it was retired', async () => {
    await (await boot()).close();
    await stage.database.query(`UPDATE outbox.durables SET seen_at = now() - interval '1 hour'`);
    const without = await stage.boot({ outbox: { role: 'publisher' } });
    await without.app.get(Durables).retire('mail');
    const app = await boot();
    const before = await app.publisher.publishNow(asked, {});
    await eventually('the other gets it', async () => (await handled(before.id)).includes('ledger'));
    await without.app.get(Durables).revive('mail');
    const after = await app.publisher.publishNow(asked, {});
    await eventually('both get it', async () => (await handled(after.id)).length === 2);
    expect(await handled(before.id)).toEqual(['ledger']);
    expect(await handled(after.id)).toEqual(['ledger', 'mail']);
    await app.close();
  });
});
