import { connect, type JetStreamManager, type NatsConnection } from 'nats';
import { BrokerSite } from '../../../../../test/support/broker-site.js';
import { eventually, gate } from '../../../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';

describeWithOwnNats('a consumer that was deleted', () => {
  let site: BrokerSite;
  let admin: NatsConnection;
  let manager: JetStreamManager;

  beforeEach(async () => {
    site = await BrokerSite.open();
    admin = await connect({ servers: site.server.url });
    manager = await admin.jetstreamManager();
  });

  afterEach(async () => {
    await admin?.close();
    await site?.close();
  });

  it('is made again while its workers wait; what is published meanwhile and afterwards is handled once', async () => {
    const app = await site.worker();
    const ids = await site.publish(50);
    await site.handledOnce(ids);
    await manager.consumers.delete('outbox', 'ledger');
    ids.push(...(await site.publish(50)));
    await site.handledOnce(ids);
    await eventually('it is there again', () => manager.consumers.info('outbox', 'ledger'));
    await site.chargedNothing();
    expect(app.log.matching(/consumer 'ledger' was (gone and was )?made/).length).toBeGreaterThanOrEqual(2);
    expect(app.log.matching(/consumer 'mail' was gone/)).toEqual([]);
  });

  it('with a backlog and messages in flight: all of them are handled once, nothing is charged', async () => {
    const go = gate();
    await site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 2 } } });
    const ids = await site.publish(100);
    await site.forwarded();
    await eventually('some are in flight', async () => {
      return (await manager.consumers.info('outbox', 'ledger')).num_ack_pending > 0;
    });
    await manager.consumers.delete('outbox', 'ledger');
    await manager.consumers.delete('outbox', 'mail');
    go.open();
    await site.handledOnce(ids, 40_000);
    await site.chargedNothing();
  });

  it('again and again, under load, with two workers that make it again both', async () => {
    const apps = [await site.worker(), await site.worker()];
    const load = site.load();
    for (let n = 0; n < 4; n++) {
      const before = load.count();
      await eventually('there is load', () => load.count() > before + 40, 30_000);
      await manager.consumers.delete('outbox', n % 2 ? 'mail' : 'ledger').catch(() => {});
    }
    await site.handledOnce(await load.stop(), 40_000);
    await site.chargedNothing();
    for (const app of apps) expect(app.log.matching(/^error/)).toEqual([]);
  });

  it('while every worker was down: it begins where it has to, and what lies before is found', async () => {
    const go = gate();
    const app = await site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 1 } } });
    const ids = await site.publish(60);
    await site.forwarded();
    const closed = app.close();
    go.open();
    await closed;
    await manager.consumers.delete('outbox', 'ledger');
    await site.worker();
    await site.handledOnce(ids, 40_000);
    await site.chargedNothing();
  });
});
