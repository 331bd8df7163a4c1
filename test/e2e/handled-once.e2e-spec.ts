import { eventually, gate } from '../support/eventually.js';
import { itOfRows } from '../support/of-rows.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'billing.invoice.paid';

describe('a handler runs once however often the event is delivered', () => {
  const stage = useStage();
  let apps: TestApp[];
  /** Runs of the method itself, in both apps: those that began and were rolled back would count, too. */
  const runs = new Map<string, number>();
  const slow = gate();
  const inSlow = gate();

  beforeAll(async () => {
    const providers = ['a', 'b'].map((name) => [
      subscriber(event, 'ledger', async (given, context) => {
        runs.set(given.id, (runs.get(given.id) ?? 0) + 1);
        await effect(given, context, '', name);
      }),
      subscriber('billing.slow.asked', 'slow', async (given, context) => {
        runs.set(given.id, (runs.get(given.id) ?? 0) + 1);
        await effect(given, context, '', name);
        inSlow.open();
        await slow.passed;
      }),
    ]);
    apps = [];
    for (const own of providers) {
      const manifest = { emits: [event, 'billing.slow.asked'] };
      apps.push(await stage.boot({ providers: own, manifest, outbox: { relay: { poll: '50ms' } } }));
    }
  });

  const app = () => {
    const [first] = apps;
    if (!first) throw new Error('no app');
    return first;
  };
  const publish = async (count: number) => {
    const list = Array.from({ length: count }, (_, i) => ({ event, payload: { i } }));
    const published = await app().dataSource.transaction(() => app().publisher.publishMany(list));
    return published.map(({ id }) => id);
  };
  /** Delivers again what may have been handled, as a broker, an operator or a repaired table might. */
  const again = (ids: readonly string[], durable = 'ledger') =>
    stage.database.query(
      `INSERT INTO outbox.deliveries (event_id, durable) SELECT e.id, d.id FROM unnest($1::uuid[]) e(id), outbox.durables d
       WHERE d.name = $2 ON CONFLICT DO NOTHING`,
      [ids, durable],
    );
  const counts = (ids: readonly string[]) =>
    stage.database.query(
      `SELECT count(*)::int AS effects, count(DISTINCT event_id)::int AS events,
         (SELECT count(*)::int FROM outbox.handled WHERE event_id = ANY ($1) AND verdict = 'd') AS marks
       FROM effects WHERE event_id = ANY ($1)`,
      [ids],
    );

  it('a delivery that comes again after it was handled is dropped', async () => {
    const ids = await publish(20);
    await stage.settled();
    for (let round = 0; round < 3; round++) {
      await again(ids);
      await stage.settled();
    }
    expect(await counts(ids)).toEqual([{ effects: 20, events: 20, marks: 20 }]);
    expect(ids.map((id) => runs.get(id))).toEqual(ids.map(() => 1));
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.deliveries')).toBe(0);
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.attempts')).toBe(0);
  });

  it('deliveries that come again and again while two apps race for them have one effect each', async () => {
    const ids = await publish(300);
    let rounds = 0;
    await eventually('all are handled, in spite of being delivered all the time', async () => {
      await again(ids);
      rounds += 1;
      return (
        (await stage.database.value<number>(
          'SELECT count(DISTINCT event_id)::int FROM effects WHERE event_id = ANY ($1)',
          [ids],
        )) === 300
      );
    });
    for (let more = 0; more < 20; more++) await again(ids);
    await stage.settled();
    expect(rounds).toBeGreaterThan(0);
    expect(await counts(ids)).toEqual([{ effects: 300, events: 300, marks: 300 }]);
    expect(ids.map((id) => runs.get(id))).toEqual(ids.map(() => 1));
  });

  itOfRows('a delivery that comes again while its handler still runs waits for the verdict, uncharged', async () => {
    const { id } = await app().publisher.publishNow('billing.slow.asked', {});
    await inSlow.passed;
    // The running claim has deleted its row, so a second one can only be inserted once that is decided: the insert
    // waits, and finds its place free after the commit.
    const second = again([id], 'slow');
    const waits = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
      AND query LIKE 'INSERT INTO outbox.deliveries%'`;
    await eventually(
      'the second delivery meets the first',
      async () => (await app().dataSource.query(waits))[0].count > 0,
    );
    slow.open();
    await second;
    await stage.settled();
    expect(await counts([id])).toEqual([{ effects: 1, events: 1, marks: 1 }]);
    expect(runs.get(id)).toBe(1);
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.attempts WHERE event_id = $1', [id])).toBe(0);
  });

  it('a claim that meets an undecided mark of somebody else does not run the handler, and comes back', async () => {
    // The mark is written by a transaction that stays open: a worker that stands still in the middle of its claim.
    const stuck = app().dataSource.createQueryRunner();
    await stuck.startTransaction();
    const [row] = await stuck.query(`SELECT outbox.uuid7(clock_timestamp()) AS id`);
    const durable = `(SELECT id FROM outbox.durables WHERE name = 'ledger')`;
    await stage.database.query(
      `INSERT INTO outbox.events (bucket, id, type, payload) VALUES (outbox.bucket($1), $1, $2, '{}')`,
      [row.id, event],
    );
    await stuck.query(
      `INSERT INTO outbox.handled (bucket, event_id, durable, verdict) VALUES (outbox.bucket($1), $1, ${durable}, 'd')`,
      [row.id],
    );
    await again([row.id]);
    const postponed = `SELECT count(*)::int FROM outbox.deliveries WHERE event_id = $1 AND due_at > now() AND attempt = 0 AND interruptions = 0 AND lease IS NULL`;
    await eventually(
      'the claim gives way',
      async () => (await stage.database.value<number>(postponed, [row.id])) === 1,
    );
    expect(runs.get(row.id)).toBeUndefined();
    await stuck.rollbackTransaction();
    await stuck.release();
    await eventually('it is handled after all', async () => (await counts([row.id]))[0]?.['effects'] === 1);
    expect(runs.get(row.id)).toBe(1);
  });

  it('nothing runs without its event row', async () => {
    const [row] = await stage.database.query<{ id: string }>('SELECT outbox.uuid7(clock_timestamp()) AS id');
    const id = row?.id ?? '';
    await again([id]);
    await stage.settled();
    expect(runs.get(id)).toBeUndefined();
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.handled WHERE event_id = $1', [id])).toBe(0);
  });
});
