import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { connect } from 'nats';
import { startNats, type ThrowawayNats } from 'throwaway-nats';
import { asked, BrokerSite } from '../../../../../test/support/broker-site.js';
import { eventually, gate } from '../../../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';
import { CapturedLog } from '../../../../../test/support/test-app.js';
import { durableOf } from './broker.fixture.js';
import { resolve } from './jetstream.options.js';
import { Link } from './link.js';
import { Watchdog } from './watchdog.js';

async function loseMessages(server: ThrowawayNats): Promise<void> {
  await server.kill();
  await rm(join(server.storage, 'jetstream/$G/streams/outbox/msgs'), { recursive: true });
  await server.start();
}

describeWithOwnNats("a server that lost a stream's messages and kept the state of its consumers", () => {
  let site: BrokerSite;

  beforeEach(async () => {
    site = await BrokerSite.open();
  });

  afterEach(() => site?.close());

  it('gives what is published afterwards: no consumer waits for numbers that the stream has not reached', async () => {
    await site.worker({ outbox: { relay: { reconcile: '1m' } } });
    const ids = await site.publish(120);
    await site.handledOnce(ids);
    await loseMessages(site.server);
    ids.push(...(await site.publish(60)));
    await site.handledOnce(ids, 30_000);
    await site.chargedNothing();
    const admin = await connect({ servers: site.server.url });
    const manager = await admin.jetstreamManager();
    const { state } = await manager.streams.info('outbox');
    for (const durable of ['ledger', 'mail']) {
      const { delivered } = await manager.consumers.info('outbox', durable);
      expect(delivered.stream_seq).toBeLessThanOrEqual(state.last_seq);
    }
    await admin.close();
  });

  it('loses nothing of what was under way', async () => {
    const go = gate();
    await site.worker({ run: () => go.passed, outbox: { handlers: { concurrency: 2 } } });
    const ids = await site.publish(100);
    await site.forwarded();
    await eventually('handlers run', async () => (await site.database.value<number>(running)) > 0);
    await loseMessages(site.server);
    go.open();
    ids.push(...(await site.publish(20)));
    await site.handledOnce(ids, 40_000);
    await site.chargedNothing();
  });
});

describeWithOwnNats('a consumer that knows more than its stream holds', () => {
  let server: ThrowawayNats;
  let link: Link;

  beforeEach(async () => {
    server = await startNats();
    link = new Link(resolve({ servers: server.url }).settings, new CapturedLog());
    await link.open();
  });

  afterEach(async () => {
    await link?.close();
    await server?.stop();
  });

  it.each([
    ['ten minutes back, where the database has what lies before', false, 10],
    ['where its types did, where events of other databases are meant', true, 24 * 60],
  ])('begins again %s', async (_, foreign, minutes) => {
    const { settings } = resolve({ servers: server.url });
    const durable = { ...durableOf('ledger', [asked], new Date(Date.now() - 24 * 60 * 60_000)), foreign };
    const others = { installation: 'one', changed: () => {}, openMs: () => 0, log: new CapturedLog() };
    const watchdog = new Watchdog({ link, settings, durables: [durable], ...others });
    await watchdog.ensure(true);
    await link.client.publish(`outbox.${asked}`);
    await (await (await link.client.consumers.get('outbox', 'ledger')).next())?.ackAck();
    await loseMessages(server);
    await eventually('it is connected again', () => link.connected);
    await watchdog.ensure(false);
    const { config } = await link.manager.consumers.info('outbox', 'ledger');
    // Five minutes more, for two clocks.
    const back = (Date.now() - new Date(config.opt_start_time ?? 0).getTime()) / 60_000 - 5;
    expect(back).toBeGreaterThanOrEqual(minutes);
    expect(back).toBeLessThan(minutes + 1);
  });
});

const running = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`;
