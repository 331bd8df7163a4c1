import { setTimeout as pause } from 'node:timers/promises';
import { BrokerSite } from '../../support/broker-site.js';
import { eventually } from '../../support/eventually.js';
import { describeWithOwnNats } from '../../support/nats.js';

/** Longer outages differ in nothing but the tests' patience; OUTAGE_SECONDS=30 is the one to run before a release. */
const outageMs = Number(process.env['OUTAGE_SECONDS'] ?? 3) * 1_000;
const limitMs = 60_000 + 3 * outageMs;

describeWithOwnNats('an outage of the broker is not a failure', () => {
  let site: BrokerSite;

  beforeEach(async () => {
    site = await BrokerSite.open();
  });

  afterEach(() => site?.close());

  it('killed again and again under load: each event is handled once by each durable, and nothing is charged', async () => {
    await site.worker({ run: () => pause(2) });
    const load = site.load();
    for (let kills = 0; kills < 4; kills++) {
      const before = load.count();
      await eventually('there is load', () => load.count() > before + 40, 30_000);
      await site.server.kill();
      await site.server.start();
    }
    const ids = await load.stop();
    await site.handledOnce(ids, 40_000);
    await site.chargedNothing();
  });

  it(
    'stopped: the queue fills and publishers see nothing of it, then it drains, and nothing is charged',
    async () => {
      const app = await site.worker();
      const before = await site.publish(50);
      await site.handledOnce(before);
      const quiet = app.log.lines.length;
      await site.server.stopServer();
      const load = site.load(outageMs / 150);
      await pause(outageMs);
      const ids = [...before, ...(await load.stop())];
      expect(await site.queued()).toBe(ids.length - before.length);
      const said = app.log.lines.slice(quiet);
      await site.server.start();
      await site.handledOnce(ids, 40_000);
      await site.chargedNothing();
      expect(said.join('\n')).toMatch(/the connection to nats-server .* was lost/);
      expect(said.length).toBeLessThan(3 * (outageMs / 1_000 + 3));
    },
    limitMs,
  );

  it(
    'frozen: connections stay open and nothing is answered; it goes on where it was',
    async () => {
      await site.worker({ run: () => pause(2) });
      const load = site.load();
      await eventually('there is load', () => load.count() > 60);
      site.server.pause();
      await pause(outageMs);
      site.server.unpause();
      const before = load.count();
      await eventually('there is load', () => load.count() > before + 50);
      const ids = await load.stop();
      await site.handledOnce(ids, 40_000);
      await site.chargedNothing();
    },
    limitMs,
  );
});
