import { DeadLetters } from 'nestjs-outbox';
import { eventually, gate } from '../../../../test/support/eventually.js';
import { Past } from '../../../../test/support/past.js';
import { effect, subscriber, useStage } from '../../../../test/support/stage.js';
import { CapturedLog, type TestApp } from '../../../../test/support/test-app.js';
import { Database } from '../tables/database.js';
import { Purge, type PurgeReport } from './purge.js';
import { purgeLimits } from './purge-limits.js';

const type = 'billing.invoice.paid';
const manifest = { emits: [type] };
const outbox = { relay: { poll: '50ms' as const } };

describe('what a purge has left is handled afterwards, exactly once', () => {
  const stage = useStage();
  const log = new CapturedLog();
  let app: TestApp;
  let past: Past;
  let [ledger, mail, nobody] = [0, 0, 0];
  /** What the ledger's handler does beside its effect; by event. */
  const does = new Map<string, (attempt: number) => unknown>();

  beforeAll(async () => {
    app = await stage.boot({
      manifest,
      outbox,
      providers: [
        subscriber(
          type,
          'ledger',
          async (event, context) => {
            await effect(event, context, JSON.stringify(event.payload));
            await does.get(event.id)?.(context.attempt);
          },
          { backoff: ['1h'], maxAttempts: 2 },
        ),
        subscriber(type, 'mail', (event, context) => effect(event, context)),
      ],
    });
    past = new Past(stage.database);
    // As if they had been registered before all of this was published.
    await stage.database.query(`UPDATE outbox.durable_types SET since = '-infinity'`);
    const id = (name: string) => stage.database.value<number>('SELECT id FROM outbox.durables WHERE name = $1', [name]);
    await stage.database.query(`INSERT INTO outbox.durables (name) VALUES ('nobody')`);
    [ledger, mail, nobody] = [await id('ledger'), await id('mail'), await id('nobody')];
  });

  const purge = (tries = 1_000): Promise<PurgeReport> =>
    new Purge(new Database(app.dataSource, 'outbox'), { retentionMs: 7 * 86_400_000 }, log, {
      ...purgeLimits,
      tries,
      // Also beside a newer day: that of today's bucket.
      few: 1,
      pauseMs: [1, 5],
    }).run(new AbortController().signal);
  const effects = (id: string) =>
    stage.database.query('SELECT durable, attempt FROM effects WHERE event_id = $1 ORDER BY durable', [id]);
  const due = (ids: readonly string[]) =>
    stage.database.query(
      `WITH q AS (UPDATE outbox.queue SET due_at = clock_timestamp() WHERE event_id = ANY ($1))
       UPDATE outbox.deliveries SET due_at = clock_timestamp() WHERE event_id = ANY ($1)`,
      [ids],
    );
  /** Old events that both have handled; a day has to have something to forget. */
  async function finished(): Promise<string[]> {
    const ids = await past.events(9, 5);
    await past.marked(ids, ledger);
    await past.marked(ids, mail);
    return ids;
  }
  async function forgotten(ids: readonly string[]): Promise<void> {
    expect(await past.all(ids)).toEqual([]);
  }

  it('what was still queued', async () => {
    const done = await finished();
    const ids = await past.events(9, 3);
    await past.queued(ids, "clock_timestamp() + interval '1 hour'");
    expect(await purge()).toMatchObject({ days: 1, kept: 3 });
    await forgotten(done);
    await due(ids);
    await stage.drained();
    for (const id of ids)
      expect(await effects(id)).toEqual([
        { durable: 'ledger', attempt: 1 },
        { durable: 'mail', attempt: 1 },
      ]);
    // And now it is finished, it goes.
    expect(await purge()).toMatchObject({ days: 1, kept: 0, left: 0 });
    await forgotten(ids);
  });

  it('what waited on its ladder: with its attempt behind it, and the mark of the other durable', async () => {
    const done = await finished();
    const [id = ''] = await past.events(9);
    does.set(id, (attempt) => {
      if (attempt === 1) throw new Error('asked to fail');
    });
    await past.queued([id]);
    await eventually('it has failed once', () =>
      stage.database.value<boolean>(
        'SELECT EXISTS (SELECT 1 FROM outbox.deliveries WHERE event_id = $1 AND attempt = 1)',
        [id],
      ),
    );
    await eventually('the mail is sent', async () => (await effects(id)).length === 1);
    const rows = await past.all([id]);
    expect(rows.map((row) => row.split(' ')[0])).toEqual(['attempts', 'deliveries', 'events', 'handled']);
    expect(await purge()).toMatchObject({ days: 1, kept: 1, marks: 1 });
    await forgotten(done);
    expect(await past.all([id])).toEqual(rows);
    await due([id]);
    await stage.drained('ledger');
    expect(await effects(id)).toEqual([
      { durable: 'ledger', attempt: 2 },
      { durable: 'mail', attempt: 1 },
    ]);
    expect(
      await stage.database.value(`SELECT note FROM effects WHERE event_id = $1 AND durable = 'ledger'`, [id]),
    ).toMatch(/^{"n": ?\d+}$/);
  });

  it('what was in the hands of a running handler: the purge gives way to it', async () => {
    const done = await finished();
    const [id = ''] = await past.events(9);
    const [started, end] = [gate(), gate()];
    does.set(id, async () => {
      started.open();
      await end.passed;
    });
    await past.queued([id]);
    await started.passed;
    expect(await purge(3)).toMatchObject({ days: 0, left: 1 });
    expect(await past.left(done)).toEqual(done);
    end.open();
    await stage.drained('ledger');
    expect(await effects(id)).toEqual([
      { durable: 'ledger', attempt: 1 },
      { durable: 'mail', attempt: 1 },
    ]);
    expect(await purge()).toMatchObject({ days: 1, kept: 0, left: 0 });
    await forgotten([...done, id]);
  });

  it('what waits for a durable that nobody serves, until somebody does', async () => {
    const done = await finished();
    const [id = ''] = await past.events(9);
    await past.waiting([id], nobody);
    for (let pass = 0; pass < 2; pass++) await purge();
    await forgotten(done);
    expect(await past.left([id])).toEqual([id]);
    const late = await stage.boot({
      manifest,
      outbox,
      providers: [subscriber(type, 'nobody', (event, context) => effect(event, context))],
    });
    await eventually('it is handled', async () => (await effects(id)).length > 0);
    await late.close();
    expect(await effects(id)).toEqual([{ durable: 'nobody', attempt: 2 }]);
  });

  it('what was still to be back-filled, by a pod that died before it had begun', async () => {
    const ids = await past.events(9, 7);
    await past.marked(ids, ledger);
    await past.marked(ids, mail);
    await stage.database.query(
      `WITH d AS (INSERT INTO outbox.durables (name) VALUES ('archive') RETURNING id)
       INSERT INTO outbox.durable_types (durable, pattern, matcher, since, backfill_to)
       SELECT id, $1, $1, '-infinity', '00000000-0000-0000-0000-000000000000' FROM d`,
      [type],
    );
    expect(await purge()).toMatchObject({ days: 0, left: 0 });
    const late = await stage.boot({
      manifest,
      outbox,
      providers: [subscriber(type, 'archive', (event, context) => effect(event, context), { from: 'beginning' })],
    });
    await eventually('all of it is handled', () =>
      stage.database.value<boolean>(
        `SELECT count(*) = 7 FROM effects WHERE event_id = ANY ($1) AND durable = 'archive'`,
        [ids],
      ),
    );
    await stage.drained('archive');
    await late.close();
    for (const id of ids) expect(await effects(id)).toEqual([{ durable: 'archive', attempt: 1 }]);
    await eventually('the back-fill has ended', () =>
      stage.database.value<boolean>('SELECT count(backfill_to) = 0 FROM outbox.durable_types'),
    );
    expect(await purge()).toMatchObject({ days: 1, left: 0 });
    await forgotten(ids);
  });

  it('a dead letter outlives its event; retried afterwards, nothing comes of it and it stays open', async () => {
    const [id = ''] = await past.events(9);
    does.set(id, () => {
      throw new Error('asked to fail');
    });
    await past.waiting([id], ledger);
    await eventually('it is dead', () =>
      stage.database.value<boolean>('SELECT count(*) = 1 FROM outbox.dead_letters WHERE event_id = $1', [id]),
    );
    expect(await purge()).toMatchObject({ days: 1, left: 0 });
    await forgotten([id]);
    const letters = app.app.get(DeadLetters);
    expect(await letters.retry(id, 'ledger')).toBe(false);
    expect(await letters.list()).toEqual([
      expect.objectContaining({ eventId: id, durable: 'ledger', type, payload: { n: expect.any(Number) } }),
    ]);
    await letters.resolve(id, 'ledger');
  });

  it('while events are published and handled all along, passes take nothing of them', async () => {
    const published: string[] = [];
    const stop = new AbortController();
    const publishing = (async () => {
      while (!stop.signal.aborted) {
        const batch = await app.dataSource.transaction(() =>
          app.publisher.publishMany(Array.from({ length: 5 }, (_, n) => ({ event: type, payload: { n } }))),
        );
        published.push(...batch.map(({ id }) => id));
      }
    })();
    for (let pass = 0; pass < 12; pass++) {
      // Eight to ten days: the last one is of today's bucket.
      const ids = await past.events(8 + (pass % 3), 20);
      await past.marked(ids, ledger);
      expect(await purge()).toMatchObject({ left: 0 });
      await forgotten(ids);
    }
    stop.abort();
    await publishing;
    await stage.drained('ledger');
    await stage.drained('mail');
    const [row] = await stage.database.query(
      `SELECT count(*)::int AS handled, count(DISTINCT (event_id, durable))::int AS once, (SELECT count(*)::int FROM outbox.events WHERE id = ANY ($1)) AS events,
        (SELECT count(*)::int FROM outbox.handled WHERE event_id = ANY ($1)) AS marks FROM effects WHERE event_id = ANY ($1)`,
      [published],
    );
    const n = published.length;
    expect(n).toBeGreaterThan(50);
    expect(row).toEqual({ handled: 2 * n, once: 2 * n, events: n, marks: 2 * n });
    expect(app.log.matching(/outbox\.(relay|taker|sweep|worker|backfill)/)).toEqual([]);
  });
});
