import { setTimeout as pause } from 'node:timers/promises';
import { BrokerSite } from '../../support/broker-site.js';
import { describeWithOwnNats } from '../../support/nats.js';

describeWithOwnNats('a backlog at the broker', () => {
  let site: BrokerSite;

  beforeEach(async () => {
    site = await BrokerSite.open();
  });

  afterEach(() => site?.close());

  it('is not mistaken for a loss: its events carry ids of one moment, in another order than the stream has them', async () => {
    const app = await site.worker({
      run: () => pause(40),
      jetstream: { ackWait: '30s' },
      outbox: { handlers: { concurrency: 4 } },
    });
    const ids: string[] = [];
    for (let n = 0; n < 4; n++) ids.push(...(await site.publish(60)));
    await site.handledOnce(ids);
    expect(app.log.matching(/the broker lost/)).toEqual([]);
    await site.chargedNothing();
  });
});
