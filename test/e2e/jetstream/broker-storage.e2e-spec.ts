import { BrokerSite } from '../../support/broker-site.js';
import { eventually, gate } from '../../support/eventually.js';
import { describeWithOwnNats } from '../../support/nats.js';

describeWithOwnNats("a broker that lost all it held loses nobody's work", () => {
  let site: BrokerSite;

  beforeEach(async () => {
    site = await BrokerSite.open();
  });

  afterEach(() => site?.close());

  const loseStorage = async () => {
    await site.server.stopServer();
    await site.server.wipe();
    await site.server.start();
  };
  const marks = () => site.database.value<number>('SELECT count(*)::int FROM outbox.handled');

  it('its storage was deleted while it was stopped: the stream and its consumers are made again, what they held is found', async () => {
    const go = gate();
    const app = await site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 2 } } });
    const ids = await site.publish(100);
    await site.forwarded();
    await site.server.stopServer();
    await site.server.wipe();
    expect(await marks()).toBe(0);
    go.open();
    await eventually('what had begun ends without the broker', async () => (await marks()) >= 2);
    expect(await marks()).toBeLessThan(20);
    const meanwhile = await site.publish(20);
    await site.server.start();
    await site.handledOnce([...ids, ...meanwhile], 40_000);
    await site.chargedNothing();
    expect(app.log.matching(/stream 'outbox' was gone/)).toHaveLength(1);
    expect(app.log.matching(/the broker lost \d+ events for durable/).length).toBeGreaterThanOrEqual(2);
    const after = await site.publish(20);
    await site.handledOnce([...ids, ...meanwhile, ...after]);
  });

  it('and every worker was down, too', async () => {
    const go = gate();
    const app = await site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 1 } } });
    const ids = await site.publish(100);
    await site.forwarded();
    const closed = app.close();
    go.open();
    await closed;
    expect(await marks()).toBeLessThan(20);
    await loseStorage();
    const meanwhile = await site.publish(20);
    await site.worker();
    await site.handledOnce([...ids, ...meanwhile], 40_000);
    await site.chargedNothing();
  });

  it('again and again, under load', async () => {
    await site.worker();
    const load = site.load();
    for (let losses = 0; losses < 3; losses++) {
      const before = load.count();
      await eventually('there is load', () => load.count() > before + 40, 30_000);
      await loseStorage();
    }
    await site.handledOnce(await load.stop(), 40_000);
    await site.chargedNothing();
  });
});
