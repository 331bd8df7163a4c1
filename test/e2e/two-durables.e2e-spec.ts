import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'billing.invoice.paid';

describe('two subscriptions to one event are two pieces of work', () => {
  const stage = useStage();
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({
      providers: [
        subscriber(event, 'ledger', (given, context) => effect(given, context)),
        subscriber<{ bad?: boolean }>(
          event,
          'receipts',
          async (given, context) => {
            await effect(given, context);
            if (given.payload.bad) throw new Error('no printer');
          },
          { maxAttempts: 2, backoff: ['10ms'] },
        ),
        subscriber('billing.invoice.voided', 'voids', (given, context) => effect(given, context)),
      ],
      manifest: { emits: [event, 'billing.invoice.voided', 'billing.invoice.seen'] },
      outbox: { relay: { poll: '50ms' } },
    });
  });

  const durablesOf = (id: string) =>
    stage.database.value<string[] | null>(
      'SELECT array_agg(durable ORDER BY durable) FROM effects WHERE event_id = $1',
      [id],
    );
  const verdicts = (id: string) =>
    stage.database.query(
      'SELECT d.name, h.verdict FROM outbox.handled h JOIN outbox.durables d ON d.id = h.durable WHERE h.event_id = $1 ORDER BY d.name',
      [id],
    );

  it('each handles the event once, and other subscriptions do not', async () => {
    const paid = await app.publisher.publishNow(event, {});
    const voided = await app.publisher.publishNow('billing.invoice.voided', {});
    const seen = await app.publisher.publishNow('billing.invoice.seen', {});
    await stage.settled();
    expect(await durablesOf(paid.id)).toEqual(['ledger', 'receipts']);
    expect(await durablesOf(voided.id)).toEqual(['voids']);
    expect(await durablesOf(seen.id)).toBeNull();
  });

  it('one gives up on its own: the other is done, and is not run again', async () => {
    const { id } = await app.publisher.publishNow(event, { bad: true });
    await stage.drained();
    expect(await durablesOf(id)).toEqual(['ledger']);
    expect(await verdicts(id)).toEqual([
      { name: 'ledger', verdict: 'd' },
      { name: 'receipts', verdict: 'x' },
    ]);
    expect(
      await stage.database.query('SELECT durable, attempts FROM outbox.dead_letters WHERE event_id = $1', [id]),
    ).toEqual([{ durable: 'receipts', attempts: 2 }]);
  });
});

describe('a durable is shared by every replica', () => {
  const stage = useStage();
  let apps: TestApp[];

  beforeAll(async () => {
    apps = [];
    for (const name of ['a', 'b']) {
      apps.push(
        await stage.boot({
          providers: [subscriber(event, 'ledger', (given, context) => effect(given, context, '', name))],
          manifest: { emits: [event] },
          outbox: { relay: { poll: '50ms' } },
        }),
      );
    }
  });

  it('each of 200 events is handled by one of two apps, and both have their share', async () => {
    // By turns in both apps, so that each relay has something of its own to hand over.
    for (let i = 0; i < 200; i += 10) {
      const [app] = i % 20 === 0 ? apps : apps.slice(1);
      const list = Array.from({ length: 10 }, (_, k) => ({ event, payload: { i: i + k } }));
      await app?.dataSource.transaction(() => app.publisher.publishMany(list));
    }
    await stage.settled();
    const shares = await stage.database.query<{ app: string; n: number }>(
      'SELECT app, count(*)::int AS n FROM effects GROUP BY app ORDER BY app',
    );
    expect(shares.map((share) => share.app)).toEqual(['a', 'b']);
    expect(shares.reduce((sum, share) => sum + share.n, 0)).toBe(200);
    expect(await stage.database.value('SELECT count(DISTINCT event_id)::int FROM effects')).toBe(200);
    expect(await stage.database.value(`SELECT count(*)::int FROM outbox.handled WHERE verdict = 'd'`)).toBe(200);
    // One durable for both, not one for each.
    expect(await stage.database.query('SELECT name FROM outbox.durables')).toEqual([{ name: 'ledger' }]);
  });

  it('when one leaves, the other does it all', async () => {
    const [first, second] = apps;
    await first?.close();
    await second?.dataSource.transaction(async () => {
      await second.publisher.publishMany(Array.from({ length: 20 }, (_, i) => ({ event, payload: { later: i } })));
    });
    await stage.settled();
    expect(await stage.database.value('SELECT count(*)::int FROM effects')).toBe(220);
  });
});
