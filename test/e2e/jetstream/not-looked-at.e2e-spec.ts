import { postgres } from 'nestjs-outbox';
import { BrokerSite } from '../../support/broker-site.js';
import { gate } from '../../support/eventually.js';
import { describeWithOwnNats } from '../../support/nats.js';

describeWithOwnNats('what a broker holds for a durable that the reconciler has not looked at yet', () => {
  let site: BrokerSite;

  beforeEach(async () => {
    site = await BrokerSite.open();
  });

  afterEach(() => site?.close());

  it('stands in the public view, as all that waits', async () => {
    const before = await site.worker({ outbox: { transport: postgres() } });
    await before.close();
    await site.database.query(`UPDATE outbox.durables SET looked_at = clock_timestamp() + interval '1 hour'`);
    const go = gate();
    await site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 1 } } });
    const ids = await site.publish(3);
    await site.forwarded();
    const seen = 'SELECT count(*)::int FROM outbox.deliveries_state WHERE event_id = ANY ($1::uuid[])';
    expect(await site.database.value(seen, [ids])).toBe(6);
    go.open();
    await site.handledOnce(ids);
  });
});
