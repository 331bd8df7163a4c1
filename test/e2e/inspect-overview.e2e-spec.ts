import { OutboxInspector, type Overview, type OverviewQuery } from 'nestjs-outbox';
import { Past } from '../support/past.js';
import { useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const paid = 'billing.invoice.paid';
const sent = 'billing.invoice.sent';

describe('the overview', () => {
  const stage = useStage();
  /** It runs no loops, so what the tests insert stays. */
  let app: TestApp;
  let inspector: OutboxInspector;
  let past: Past;

  beforeAll(async () => {
    app = await stage.boot({ manifest: { emits: [paid, sent] }, outbox: { role: 'publisher' } });
    inspector = app.app.get(OutboxInspector);
  });
  beforeEach(async () => {
    past = new Past(stage.database);
    await stage.database.query(`INSERT INTO outbox.durables (name, formerly, seen_at) VALUES ('ledger', '{book}', now()), ('mail', '{}', NULL);
      INSERT INTO outbox.durable_types (durable, pattern, matcher, since) SELECT id, 'billing.*.*', 'billing.%.%', '-infinity' FROM outbox.durables`);
  });
  afterEach(() =>
    stage.database.query(`TRUNCATE outbox.queue, outbox.scheduled, outbox.events, outbox.deliveries, outbox.durables, outbox.durable_types,
      outbox.handled, outbox.attempts, outbox.dead_letters, outbox.pauses, outbox.workers RESTART IDENTITY`),
  );

  async function of(durable: string, query?: OverviewQuery): Promise<Overview['durables'][number]> {
    const found = (await inspector.overview(query)).durables.find((one) => one.durable === durable);
    if (!found) throw new Error(`the overview has no ${durable}`);
    return found;
  }
  const none = { pending: 0, running: 0, retryable: 0, completed: 0, discarded: 0, cancelled: 0 };

  it('of an outbox at rest shows every durable with nothing', async () => {
    const overview = await inspector.overview();
    expect(overview).toEqual({
      at: expect.any(Date),
      queue: { waiting: 0, oldest: null },
      scheduled: { waiting: 0, next: null },
      durables: [
        {
          durable: 'ledger',
          retired: false,
          paused: null,
          counts: none,
          perSecond: 0,
          oldest: { pending: null, retryable: null, discarded: null },
          seenAt: expect.any(Date),
        },
        expect.objectContaining({ durable: 'mail', seenAt: null }),
      ],
      workers: [],
      pauses: [],
    });
  });

  it('counts what waits by kind, says since when, and leaves out what is not due yet', async () => {
    const ids = await past.events(1, 5);
    const [first = '', second = '', third = ''] = ids;
    await past.waiting(ids.slice(0, 2), 1, { due: `now() - interval '1 hour'` });
    await past.waiting([third], 1, { due: `now() + interval '1 hour'` });
    await stage.database.query('UPDATE outbox.deliveries SET attempt = 0 WHERE event_id = $1', [first]);
    await stage.database.query('UPDATE outbox.deliveries SET interruptions = 4, attempt = 0 WHERE event_id = $1', [
      second,
    ]);
    const ledger = await of('ledger');
    expect(ledger.counts).toEqual({ ...none, pending: 1, retryable: 2 });
    const hourAgo = Date.now() - 3_600_000;
    for (const since of [ledger.oldest.pending, ledger.oldest.retryable])
      expect(Math.abs((since?.getTime() ?? 0) - hourAgo)).toBeLessThan(60_000);
    expect((await of('mail')).counts).toEqual(none);
  });

  it('counts what is queued and scheduled for each durable that is to get it', async () => {
    await app.publisher.publishNow(paid, {});
    await app.publisher.publishNow(sent, {}, { delay: '2h' });
    await app.publisher.publishNow(sent, {}, { delay: '9d' });
    await stage.database.query(`UPDATE outbox.durable_types SET matcher = '${paid}' WHERE durable = 2`);
    const overview = await inspector.overview();
    expect(overview.queue).toEqual({ waiting: 2, oldest: expect.any(Date) });
    expect(overview.scheduled).toEqual({ waiting: 1, next: expect.any(Date) });
    expect(overview.durables.map(({ counts }) => counts.pending)).toEqual([3, 1]);
    const typed = await inspector.overview({ type: 'billing.*.sent' });
    expect([typed.queue.waiting, typed.scheduled.waiting]).toEqual([1, 1]);
    expect(typed.durables.map(({ counts }) => counts.pending)).toEqual([2, 0]);
  });

  it('counts to 10,001 and no further', async () => {
    const ids = await past.events(1, 10_050);
    await past.waiting(ids, 1);
    await past.queued(ids);
    const overview = await inspector.overview();
    expect(overview.queue.waiting).toBe(10_001);
    expect(overview.durables.map(({ counts }) => [counts.pending, counts.retryable])).toEqual([
      [10_001, 10_001],
      [10_001, 0],
    ]);
  });

  it('measures by the marks of the last minute, whatever day their events are of', async () => {
    const old = await past.events(2, 120);
    await past.marked(old, 1);
    await stage.database.query(`UPDATE outbox.handled SET started_at = now() - interval '2 minutes'`);
    const ids = [...(await past.events(3, 60)), ...(await past.events(1, 60))];
    await past.marked(ids, 1);
    await past.marked(ids.slice(0, 3), 2, 'c');
    const ledger = await of('ledger');
    expect(ledger).toMatchObject({ counts: { completed: 120, cancelled: 0 }, perSecond: 2 });
    expect((await of('mail')).counts).toMatchObject({ completed: 0, cancelled: 3 });
    expect((await of('ledger', { type: sent })).counts.completed).toBe(0);
    expect((await of('ledger', { type: paid })).counts.completed).toBe(120);
  });

  it('counts open dead letters, those under a former name too, and names what could not be forwarded', async () => {
    const [one = '', two = '', three = ''] = await past.events(1, 3);
    for (const [id, durable] of [
      [one, 'ledger'],
      [two, 'book'],
      [three, '#relay'],
    ])
      await stage.database.query(
        `INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at, dead_at) VALUES ($1, $2, $3, '{}', now(), now() - interval '3 hours')`,
        [id, durable, paid],
      );
    const overview = await inspector.overview();
    expect(overview.durables.map(({ durable, counts }) => [durable, counts.discarded])).toEqual([
      ['ledger', 2],
      ['mail', 0],
      ['#relay', 1],
    ]);
    expect((await of('ledger')).oldest.discarded?.getTime()).toBeLessThan(Date.now() - 3_500_000);
    await stage.database.query('UPDATE outbox.dead_letters SET resolved_at = now()');
    expect((await inspector.overview()).durables.map(({ counts }) => counts.discarded)).toEqual([0, 0]);
  });

  it('shows pauses, on their durable as well, with what is parked under them', async () => {
    const ids = await past.events(1, 2);
    await stage.database.query(
      `INSERT INTO outbox.pauses (kind, name, durable, matcher, reason, paused_by, until) VALUES ('durable', 'mail', 2, NULL, 'INC-42', 'ana', now() + interval '1 hour'),
       ('tenant', 'acme', NULL, NULL, NULL, NULL, now() - interval '1 second')`,
    );
    await past.waiting(ids, 2, { lease: -1 });
    const overview = await inspector.overview();
    const pause = {
      id: 1,
      kind: 'durable',
      name: 'mail',
      since: expect.any(Date),
      until: expect.any(Date),
      by: 'ana',
      reason: 'INC-42',
    };
    expect(overview.pauses).toEqual([pause]);
    expect(await of('mail')).toMatchObject({ paused: pause, counts: { retryable: 2 } });
    expect((await of('ledger')).paused).toBeNull();

    // A new version of the app has another name for it.
    await stage.database.query(`UPDATE outbox.durables SET name = 'post', formerly = '{mail}' WHERE name = 'mail'`);
    expect(await of('post')).toMatchObject({ paused: { ...pause, name: 'post' } });
    expect(await stage.database.query('SELECT name FROM outbox.pauses_active')).toEqual([{ name: 'post' }]);
  });

  it('shows workers that are there, and what they said last that they run', async () => {
    const [id = ''] = await past.events(1);
    await stage.database.query(
      `INSERT INTO outbox.workers (app, in_flight, gone_at, seen_at) VALUES ('host 7', jsonb_build_object('running', 1, 'deliveries', jsonb_build_array(jsonb_build_array($1::uuid, 1, 40))), NULL, now()),
       ('gone', '{"running":3}', now(), now()), ('older', '{"running":2}', NULL, now() - interval '1 minute')`,
      [id],
    );
    const overview = await inspector.overview();
    expect(overview.workers).toEqual([
      { number: 1, app: 'host 7', running: 1, seenAt: expect.any(Date) },
      { number: 3, app: 'older', running: 2, seenAt: expect.any(Date) },
    ]);
    expect((await of('ledger')).counts.running).toBe(1);
    expect((await of('ledger', { type: sent })).counts.running).toBe(0);
  });

  it('counts what workers have fetched and not begun, also of one that is gone and not swept', async () => {
    await stage.database.query(`INSERT INTO outbox.workers (app, in_flight, gone_at, seen_at) VALUES
       ('host 7', '{"running":3,"deliveries":[],"leased":[[1,50],[2,57]]}', NULL, now()),
       ('killed', '{"running":0,"leased":[[1,4]]}', NULL, now() - interval '1 hour'),
       ('swept', '{"running":0,"leased":[[1,1000]]}', now(), now() - interval '1 hour')`);
    expect((await of('ledger')).counts).toEqual({ ...none, pending: 54 });
    expect((await of('mail')).counts).toEqual({ ...none, pending: 57 });
  });

  it('refuses a type that is none', async () => {
    await expect(inspector.overview({ type: 'billing' })).rejects.toMatchObject({ code: 'OUTBOX_INVALID_QUERY' });
  });
});
