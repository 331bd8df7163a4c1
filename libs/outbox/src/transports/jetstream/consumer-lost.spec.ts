import { eventually, gate } from '../../../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';
import { useBrokerSite } from './broker.fixture.js';

describeWithOwnNats('a consumer that was deleted', () => {
  const at = useBrokerSite();

  it('is made again while its workers wait; what is published meanwhile and afterwards is handled once', async () => {
    const app = await at.site.worker();
    const ids = await at.site.publish(50);
    await at.site.handledOnce(ids);
    await at.manager.consumers.delete('outbox', 'ledger');
    ids.push(...(await at.site.publish(50)));
    await at.site.handledOnce(ids);
    await eventually('it is there again', () => at.manager.consumers.info('outbox', 'ledger'));
    await at.site.chargedNothing();
    expect(app.log.matching(/consumer 'ledger' was (gone and was )?made/).length).toBeGreaterThanOrEqual(2);
    expect(app.log.matching(/consumer 'mail' was gone/)).toEqual([]);
  });

  it('with a backlog and messages in flight: all of them are handled once, nothing is charged', async () => {
    const go = gate();
    await at.site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 2 } } });
    const ids = await at.site.publish(100);
    await at.site.forwarded();
    await eventually('some are in flight', async () => {
      return (await at.manager.consumers.info('outbox', 'ledger')).num_ack_pending > 0;
    });
    await at.manager.consumers.delete('outbox', 'ledger');
    await at.manager.consumers.delete('outbox', 'mail');
    go.open();
    await at.site.handledOnce(ids, 40_000);
    await at.site.chargedNothing();
  });

  it('again and again, under load, with two workers that make it again both', async () => {
    const apps = [await at.site.worker(), await at.site.worker()];
    const load = at.site.load();
    for (let n = 0; n < 4; n++) {
      const before = load.count();
      await eventually('there is load', () => load.count() > before + 40, 30_000);
      await at.manager.consumers.delete('outbox', n % 2 ? 'mail' : 'ledger').catch(() => {});
    }
    await at.site.handledOnce(await load.stop(), 40_000);
    await at.site.chargedNothing();
    for (const app of apps) expect(app.log.matching(/^error/)).toEqual([]);
  });

  it('while every worker was down: it begins where it has to, and what lies before is found', async () => {
    const go = gate();
    const app = await at.site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 1 } } });
    const ids = await at.site.publish(60);
    await at.site.forwarded();
    const closed = app.close();
    go.open();
    await closed;
    await at.manager.consumers.delete('outbox', 'ledger');
    await at.site.worker();
    await at.site.handledOnce(ids, 40_000);
    await at.site.chargedNothing();
  });
});
