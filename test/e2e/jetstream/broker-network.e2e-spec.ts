import { setTimeout as pause } from 'node:timers/promises';
import { BrokerSite } from '../../support/broker-site.js';
import { eventually } from '../../support/eventually.js';
import { describeWithOwnNats } from '../../support/nats.js';
import { TcpProxy } from '../../support/tcp-proxy.js';

describeWithOwnNats('the network between a worker and the broker', () => {
  let site: BrokerSite;
  let network: TcpProxy;

  beforeEach(async () => {
    site = await BrokerSite.open();
    network = await TcpProxy.before(site.server.url);
  });

  afterEach(async () => {
    await site?.close();
    await network?.close();
  });

  it('is cut again and again under load: each event is handled once by each durable, and nothing is charged', async () => {
    await site.worker({ run: () => pause(2), jetstream: { servers: network.url } });
    const load = site.load();
    for (let cuts = 0; cuts < 5; cuts++) {
      const before = load.count();
      await eventually('there is load', () => load.count() > before + 40, 30_000);
      network.cut();
      await pause(300);
      network.mend();
    }
    await site.handledOnce(await load.stop(), 40_000);
    await site.chargedNothing();
  });

  it('is cut for one of two workers: the other does its work meanwhile', async () => {
    await site.worker({ jetstream: { servers: network.url } });
    await site.worker();
    const before = await site.publish(50);
    await site.handledOnce(before);
    network.cut();
    const ids = [...before, ...(await site.publish(100))];
    await site.handledOnce(ids, 40_000);
    network.mend();
    await site.chargedNothing();
  });

  it('loses the answers to publishes: what the broker had stored is published again, and handled once', async () => {
    await site.worker({ jetstream: { servers: network.url } });
    const ids: string[] = [];
    for (let losses = 1; losses <= 3; losses++) {
      network.loseAnswerTo('ce-id');
      ids.push(...(await site.publish(40)));
      await eventually('an answer is lost', () => network.lost === losses);
      await site.handledOnce(ids, 40_000);
    }
    await site.chargedNothing();
  });

  it('swallows everything and closes nothing: it is noticed, and the work goes on afterwards', async () => {
    const app = await site.worker({ run: () => pause(2), jetstream: { servers: network.url } });
    const load = site.load();
    await eventually('there is load', () => load.count() > 60);
    network.swallow();
    await eventually(
      'it is noticed',
      () => app.log.matching(/connection to nats-server .* was lost/).length > 0,
      25_000,
    );
    network.mend();
    const before = load.count();
    await eventually('there is load', () => load.count() > before + 40);
    await site.handledOnce(await load.stop(), 40_000);
    await site.chargedNothing();
  });
});
