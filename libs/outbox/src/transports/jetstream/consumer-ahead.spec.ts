import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { connect } from 'nats';
import { BrokerSite } from '../../../../../test/support/broker-site.js';
import { eventually, gate } from '../../../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';

describeWithOwnNats("a server that lost a stream's messages and kept the state of its consumers", () => {
  let site: BrokerSite;

  beforeEach(async () => {
    site = await BrokerSite.open();
  });

  afterEach(() => site?.close());

  const loseMessages = async () => {
    await site.server.kill();
    await rm(join(site.server.storage, 'jetstream/$G/streams/outbox/msgs'), { recursive: true });
    await site.server.start();
  };

  it('gives what is published afterwards: no consumer waits for numbers that the stream has not reached', async () => {
    await site.worker({ outbox: { relay: { reconcile: '1m' } } });
    const ids = await site.publish(300);
    await site.handledOnce(ids);
    await loseMessages();
    ids.push(...(await site.publish(100)));
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
    const ids = await site.publish(200);
    await site.forwarded();
    await eventually('handlers run', async () => (await site.database.value<number>(running)) > 0);
    await loseMessages();
    go.open();
    ids.push(...(await site.publish(20)));
    await site.handledOnce(ids, 40_000);
    await site.chargedNothing();
  });
});

const running = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`;
