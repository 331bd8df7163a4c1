import { connect } from 'nats';
import { startNats, type ThrowawayNats } from 'throwaway-nats';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';
import { CapturedLog } from '../../../../../test/support/test-app.js';
import { durableOf } from './broker.fixture.js';
import { resolve } from './jetstream.options.js';
import { Link } from './link.js';
import { Watchdog } from './watchdog.js';

describeWithOwnNats('a watch over several consumers', () => {
  let nats: ThrowawayNats;
  let link: Link;

  beforeAll(async () => {
    nats = await startNats({
      config: `authorization { users: [
        { user: admin, password: secret }
        { user: app, password: secret, permissions: { publish: { deny: ["$JS.API.CONSUMER.INFO.outbox.first"] } } }
      ] }`,
    });
  });
  afterAll(async () => {
    await link?.close();
    await nats?.stop();
  });

  it('one that cannot be had keeps none of the others from being made, and is told of', async () => {
    const { settings } = resolve({ servers: nats.url, user: 'app', pass: 'secret' });
    const log = new CapturedLog();
    link = new Link(settings, log);
    await link.open();
    const durables = ['first', 'second', 'third'].map((name) => durableOf(name, ['*.*.*']));
    const watchdog = new Watchdog({
      ...{ link, settings, installation: 'one', durables, log },
      changed: () => {},
      openMs: () => 0,
    });
    await expect(watchdog.ensure(true)).rejects.toThrow(/permissions violation/i);
    const admin = await connect({ servers: nats.url, user: 'admin', pass: 'secret' });
    try {
      const { consumers } = await admin.jetstreamManager();
      const standing = async () => (await consumers.list('outbox').next()).map(({ name }) => name).toSorted();
      expect(await standing()).toEqual(['second', 'third']);
      await consumers.delete('outbox', 'third');
      await expect(watchdog.ensure(false)).rejects.toThrow(/permissions violation/i);
      expect(await standing()).toEqual(['second', 'third']);
    } finally {
      await admin.close();
    }
    expect(log.matching(/consumer 'third' was gone and was made again/)).toHaveLength(1);
  });
});
