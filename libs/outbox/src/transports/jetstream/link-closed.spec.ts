import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { NatsConnection } from 'nats';
import { BrokerSite } from '../../../../../test/support/broker-site.js';
import { eventually } from '../../../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';
import type { Transport, TransportFactory } from '../../core/transport.js';
import { jetstream } from './jetstream.transport.js';
import type { Link } from './link.js';

/** The factory, and the connection of the transport that it made last. */
function watched(factory: TransportFactory): { factory: TransportFactory; connection: () => NatsConnection } {
  let made: Transport | undefined;
  const create: TransportFactory['create'] = (parts) => (made = factory.create(parts));
  return {
    factory: { ...factory, create },
    connection: () => {
      const { link } = made as unknown as { link: Link };
      return (link.manager as unknown as { nc: NatsConnection }).nc;
    },
  };
}

describeWithOwnNats('a connection that ended for good', () => {
  let site: BrokerSite;

  afterEach(() => site?.close());

  it('is followed by another, again and again, under load', async () => {
    site = await BrokerSite.open();
    const { factory, connection } = watched(jetstream({ servers: site.server.url, ackWait: '2s' }));
    const app = await site.worker({ outbox: { transport: factory, relay: { reconcile: '1s' } } });
    const load = site.load();
    for (let n = 1; n <= 4; n++) {
      const before = load.count();
      await eventually('there is load', () => load.count() > before + 40, 30_000);
      const old = connection();
      await old.close();
      await eventually('there is another', () => {
        try {
          return connection() !== old;
        } catch {
          return false;
        }
      });
    }
    await site.handledOnce(await load.stop(), 40_000);
    await site.chargedNothing();
    expect(app.log.matching(/was closed/).length).toBeGreaterThan(0);
  });

  it('drained by somebody: nothing stands still', async () => {
    site = await BrokerSite.open();
    const { factory, connection } = watched(jetstream({ servers: site.server.url, ackWait: '2s' }));
    await site.worker({ outbox: { transport: factory, relay: { reconcile: '1s' } } });
    const ids = await site.publish(50);
    await site.handledOnce(ids);
    await connection().drain();
    ids.push(...(await site.publish(50)));
    await site.handledOnce(ids);
    await site.chargedNothing();
  });
});

describeWithOwnNats('a login that is revoked while workers run', () => {
  let site: BrokerSite;

  afterEach(() => site?.close());

  const users = (password: string) => `authorization { users = [ { user: app, password: "${password}" } ] }`;
  /** Like a reload by an operator. */
  const configure = async (config: string) => {
    const { server } = site;
    const lines = [
      `listen: 127.0.0.1:${new URL(server.url).port}`,
      `jetstream { store_dir: "${server.storage}" }`,
      config,
    ];
    await writeFile(join(dirname(server.storage), 'nats.conf'), lines.join('\n'));
    // Never of nobody: 0 is everybody of this group.
    if (!server.pid) throw new Error('the server does not run');
    process.kill(server.pid, 'SIGHUP');
  };

  it('is tried again and again, says so, and works on when it is given back', async () => {
    site = await BrokerSite.open({ config: users('first') });
    const app = await site.worker({ jetstream: { user: 'app', pass: 'first' } });
    const ids = await site.publish(50);
    await site.handledOnce(ids);
    await configure(users('second'));
    await eventually('it is out', () => app.log.matching(/was lost|was closed/).length > 0);
    ids.push(...(await site.publish(50)));
    await pause(3_000);
    expect(await site.queued()).toBe(50);
    await configure(users('first'));
    await site.handledOnce(ids, 30_000);
    await site.chargedNothing();
  });

  it('a wrong login is refused at the start, without waiting', async () => {
    site = await BrokerSite.open({ config: users('first') });
    const begin = performance.now();
    await expect(site.worker({ jetstream: { user: 'app', pass: 'second' } })).rejects.toThrow(/auth/i);
    expect(performance.now() - begin).toBeLessThan(10_000);
  });
});
