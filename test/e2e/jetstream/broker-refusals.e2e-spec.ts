import { DeadLetters } from 'nestjs-outbox';
import { asked, BrokerSite } from '../../support/broker-site.js';
import { eventually } from '../../support/eventually.js';
import { describeWithOwnNats } from '../../support/nats.js';
import type { TestApp } from '../../support/test-app.js';

describeWithOwnNats('what the broker does not take', () => {
  let site: BrokerSite;

  afterEach(() => site?.close());

  const charged = () =>
    site.database.query<{ event_id: string; attempts: number; last_error: string }>(
      'SELECT event_id, attempts, last_error FROM outbox.queue WHERE attempts > 0',
    );
  const publishLarge = async (bytes: number) => {
    const { publisher } = site.publisher;
    return (await publisher.publishNow(asked, { n: 0, filling: 'x'.repeat(bytes) })).id;
  };
  const lost = (app: TestApp) => app.log.matching(/was lost|was closed|waiting for nats-server/);

  it('a full stream: events wait in the queue, uncharged, and are carried when it is given more room', async () => {
    site = await BrokerSite.open();
    const app = await site.worker({ jetstream: { maxBytes: 40_000 } });
    const ids = await site.publish(400);
    await eventually('it is full', () => app.log.matching(/stream is full/).length > 0);
    expect(await site.queued()).toBeGreaterThan(0);
    await site.chargedNothing();
    await site.worker({ jetstream: { maxBytes: 4_000_000 } });
    ids.push(...(await site.publish(20)));
    await site.handledOnce(ids, 40_000);
    await site.chargedNothing();
    expect(lost(app)).toEqual([]);
  });

  it('an event over max_payload: charged to its row alone, while others flow, and in the end one dead letter of the relay', async () => {
    site = await BrokerSite.open({ config: 'max_payload: 64KB' });
    const letters: { eventId: string; durable: string; attempts: number; error: string }[] = [];
    const app = await site.worker({ outbox: { onDeadLetter: (letter) => void letters.push(letter) } });
    const large = await publishLarge(80_000);
    const ids = await site.publish(50);
    await site.handledOnce(ids);
    const refused = { event_id: large, attempts: expect.any(Number), last_error: expect.stringMatching(/max_payload/) };
    await eventually('it is charged', async () => (await charged()).length > 0);
    expect(await charged()).toEqual([refused]);
    const due = (attempts: number) =>
      site.database.query('UPDATE outbox.queue SET attempts = $1, due_at = clock_timestamp() WHERE event_id = $2', [
        attempts,
        large,
      ]);
    await due(18);
    await eventually('it is charged again', async () => (await charged())[0]?.attempts === 19);
    expect(letters).toEqual([]);
    await due(19);
    await eventually('it is given up', () => letters.length > 0);
    expect(letters).toMatchObject([
      { eventId: large, durable: '#relay', attempts: 20, error: expect.stringMatching(/max_payload/) },
    ]);
    expect(await site.queued()).toBe(0);
    expect(await site.database.query('SELECT event_id, durable, attempts FROM outbox.dead_letters')).toEqual([
      { event_id: large, durable: '#relay', attempts: 20 },
    ]);
    expect(lost(app)).toEqual([]);
    // Not lost: nobody delivers it behind its dead letter's back, not even the look at everything.
    await site.database.query(`UPDATE outbox.durables SET verified_all_at = now() - interval '2 days'`);
    await eventually('everything was looked at', () =>
      site.database.value<boolean>(`SELECT bool_and(verified_all_at > now() - interval '1 day') FROM outbox.durables`),
    );
    ids.push(...(await site.publish(10)));
    await site.handledOnce(ids);
    // An operator has it forwarded once more, to a server that takes it by now or not.
    const desk = app.app.get(DeadLetters);
    expect(await desk.retry(large, '#relay')).toBe(true);
    expect(await desk.retry(large, '#relay')).toBe(false);
    await eventually('it is refused again', async () => (await charged())[0]?.attempts === 1);
    expect(await charged()).toEqual([refused]);
  });

  it('events around the limit: each is handled or refused, and none ends the connection', async () => {
    site = await BrokerSite.open({ config: 'max_payload: 64KB' });
    const app = await site.worker();
    const sizes = Array.from({ length: 40 }, (_, i) => 65_536 - 800 + i * 25);
    const ids = await Promise.all(sizes.map(publishLarge));
    await eventually('all have been tried', () =>
      site.database.value<boolean>('SELECT NOT EXISTS (SELECT 1 FROM outbox.queue WHERE attempts = 0)'),
    );
    const refused = new Set((await charged()).map((row) => row.event_id));
    expect(refused.size).toBeGreaterThan(0);
    expect(refused.size).toBeLessThan(ids.length);
    await site.handledOnce(ids.filter((id) => !refused.has(id)));
    expect(lost(app)).toEqual([]);
  });

  it('a name that SQL put into the table and that would end the connection never gets to it', async () => {
    site = await BrokerSite.open();
    const app = await site.worker();
    const { dataSource, publisher } = site.publisher;
    const bad = ['a b.c.d', 'a.b.c\r\nPING', 'a..b', 'a.b.*', 'a.b.>', 'é.b.c', `a.b.${'c'.repeat(5_000)}`, ''];
    const named = await dataSource.transaction(async (manager) => {
      const published = await publisher.publishMany(bad.map((_, n) => ({ event: asked, payload: { n } })));
      for (const [i, type] of bad.entries())
        await manager.query('UPDATE outbox.events SET type = $1 WHERE id = $2', [type, published[i]?.id]);
      return published.map(({ id }) => id);
    });
    const ids = await site.publish(50);
    await site.handledOnce(ids);
    await eventually('all are charged', async () => (await charged()).length === bad.length);
    const rows = await charged();
    expect(rows.map((row) => row.event_id).toSorted()).toEqual(named.toSorted());
    for (const row of rows) expect(row.last_error).toMatch(/no event type that can be a subject/);
    expect(lost(app)).toEqual([]);
    expect(app.log.matching(/nats-server: /)).toEqual([]);
  });

  it('nothing at all, without JetStream: the boot waits, says so, and is refused with the remedy', async () => {
    site = await BrokerSite.open({ jetstream: false });
    await expect(site.worker()).rejects.toThrow(/no JetStream for this account: start it with -js/);
  });
});
