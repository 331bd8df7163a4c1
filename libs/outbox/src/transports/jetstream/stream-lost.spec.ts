import { nanos, type PurgeOpts } from 'nats';
import { eventually, gate } from '../../../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';
import { useBrokerSite } from './broker.fixture.js';

describeWithOwnNats('a stream that lost what it held', () => {
  const at = useBrokerSite();

  /** A worker whose handlers wait, with most of so many events in the stream. */
  const backlog = async (count: number) => {
    const go = gate();
    const app = await at.site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 2 } } });
    const ids = await at.site.publish(count);
    await at.site.forwarded();
    await eventually('some are in flight', async () => {
      return (await at.manager.consumers.info('outbox', 'ledger')).num_ack_pending > 0;
    });
    return { app, go, ids };
  };

  it('it was deleted: it is made again with its consumers, and what it held is handled once', async () => {
    const { app, go, ids } = await backlog(80);
    await at.manager.streams.delete('outbox');
    ids.push(...(await at.site.publish(20)));
    go.open();
    await at.site.handledOnce(ids, 40_000);
    await at.site.chargedNothing();
    expect(app.log.matching(/stream 'outbox' was gone/)).toHaveLength(1);
  });

  it('it was deleted again and again, under load', async () => {
    await at.site.worker();
    const load = at.site.load();
    for (let n = 0; n < 3; n++) {
      const before = load.count();
      await eventually('there is load', () => load.count() > before + 40, 30_000);
      await at.manager.streams.delete('outbox').catch(() => {});
    }
    await at.site.handledOnce(await load.stop(), 40_000);
    await at.site.chargedNothing();
  });

  it.each<[string, PurgeOpts | undefined]>([
    ['wholly', undefined],
    ['up to a message', { seq: 50 }],
    ['but for the last messages', { keep: 20 }],
    ['of one type', { filter: 'outbox.test.work.asked' }],
  ])('it was purged %s: what it held is handled once, and so is what comes after', async (_, how) => {
    const { go, ids } = await backlog(80);
    await at.manager.streams.purge('outbox', how);
    ids.push(...(await at.site.publish(20)));
    go.open();
    await at.site.handledOnce(ids, 40_000);
    ids.push(...(await at.site.publish(20)));
    await at.site.handledOnce(ids, 40_000);
    await at.site.chargedNothing();
  });

  it('it was purged while its consumers had nothing: what comes after is given at once', async () => {
    await at.site.worker({ outbox: { relay: { reconcile: '30s' } } });
    const ids = await at.site.publish(50);
    await at.site.handledOnce(ids);
    await at.manager.streams.purge('outbox');
    ids.push(...(await at.site.publish(50)));
    await at.site.handledOnce(ids, 10_000);
  });

  it('its messages expired by max_age while every worker was down', async () => {
    const { app, go, ids } = await backlog(80);
    const closed = app.close();
    go.open();
    await closed;
    const { config } = await at.manager.streams.info('outbox');
    await at.manager.streams.update('outbox', { ...config, max_age: nanos(1_000), duplicate_window: nanos(1_000) });
    await eventually('all is expired', async () => (await at.manager.streams.info('outbox')).state.messages === 0);
    await at.site.worker();
    ids.push(...(await at.site.publish(20)));
    await at.site.handledOnce(ids, 40_000);
    await at.site.chargedNothing();
    expect((await at.manager.streams.info('outbox')).config.max_age).toBe(config.max_age);
  });

  it('single messages were deleted, the one at which a consumer stands among them', async () => {
    const { go, ids } = await backlog(90);
    const { ack_floor: floor } = await at.manager.consumers.info('outbox', 'ledger');
    for (const offset of [1, 2, 3, 40, 41, 80])
      await at.manager.streams.deleteMessage('outbox', floor.stream_seq + offset);
    go.open();
    await at.site.handledOnce(ids, 40_000);
    await at.site.chargedNothing();
  });
});
