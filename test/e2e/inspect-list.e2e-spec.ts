import { type DeliveryFilter, type DeliveryState, OutboxInspector, outboxSchema } from 'nestjs-outbox';
import { Client } from 'pg';
import { eventually, gate } from '../support/eventually.js';
import { Past } from '../support/past.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';
import { createRole, describeWithRoles } from '../support/test-role.js';

const paid = 'billing.invoice.paid';
const manifest = { emits: [paid, 'billing.invoice.sent'] };
const unknown = '019a0000-0000-7000-8000-000000000000';

describe('the inspector lists deliveries', () => {
  const stage = useStage();
  /** It runs no loops, so what the tests insert stays. */
  let app: TestApp;
  let inspector: OutboxInspector;
  let past: Past;

  beforeAll(async () => {
    app = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    inspector = app.app.get(OutboxInspector);
  });
  beforeEach(async () => {
    past = new Past(stage.database);
    await stage.database.query(`INSERT INTO outbox.durables (name, formerly) VALUES ('ledger', '{book}'), ('mail', '{}');
      INSERT INTO outbox.durable_types (durable, pattern, matcher, since) SELECT id, 'billing.*.*', 'billing.%.%', '-infinity' FROM outbox.durables`);
  });
  afterEach(() =>
    stage.database.query(`TRUNCATE outbox.queue, outbox.scheduled, outbox.events, outbox.deliveries, outbox.durables, outbox.durable_types,
      outbox.handled, outbox.attempts, outbox.dead_letters, outbox.pauses RESTART IDENTITY`),
  );

  const listed = async (filter: DeliveryFilter = {}): Promise<string[]> =>
    (await inspector.list(filter)).deliveries.map(({ eventId, durable, state }) => `${eventId} ${durable} ${state}`);

  async function letter(id: string, durable: string, error = 'it died', created = 'now()'): Promise<void> {
    await stage.database.query(
      `INSERT INTO outbox.dead_letters (event_id, durable, tenant_id, type, subject, payload, headers, created_at, error, attempts, history)
       VALUES ($1, $2, 'acme', $3, 'inv-9', '{"n":9}', '{"from":"test"}', ${created}, $4, 3, '[{"n":1,"error":"first","at":"2026-11-01T10:00:00Z"},{"n":2,"error":"second","at":"2026-11-01T11:00:00Z"}]')`,
      [id, durable, paid, error],
    );
  }

  it('newest event first, all but completed unless it is asked for them, and tells about each', async () => {
    const [old = '', young = ''] = await past.events(1, 2);
    await past.marked([old], 1);
    await past.waiting([old], 2, { due: `now() + interval '1 hour'` });
    await past.waiting([young], 2);
    await past.marked([young], 1, 'x');
    await letter(young, 'book');
    const { deliveries, next } = await inspector.list();
    expect(next).toBeNull();
    expect(deliveries.map(({ eventId, durable, state }) => [eventId, durable, state])).toEqual([
      [young, 'mail', 'retryable'],
      [young, 'ledger', 'discarded'],
      [old, 'mail', 'retryable'],
    ]);
    expect(deliveries[1]).toMatchObject({
      type: paid,
      tenantId: 'acme',
      subject: 'inv-2',
      attempts: 2,
      dueAt: null,
      since: expect.any(Date),
      worker: '7',
      error: 'it died',
      pause: null,
      publishedAt: expect.any(Date),
    });
    expect(deliveries[2]).toMatchObject({ attempts: 1, dueAt: expect.any(Date), since: null, error: 'it failed' });
    expect(await listed({ state: 'completed' })).toEqual([`${old} ledger completed`]);
    expect(await listed({ state: [] })).toEqual([]);
  });

  it('by durable (also by a former name), type, tenant, subject, id, time and text of the error', async () => {
    const [one = '', two = ''] = await past.events(1, 2);
    const [other = ''] = await past.events(0, 1, 'billing.invoice.sent');
    await past.waiting([one, two, other], 1);
    await past.waiting([one], 2);
    await stage.database.query(`UPDATE outbox.events SET tenant_id = 'globex' WHERE id = $1`, [two]);
    await stage.database.query(`UPDATE outbox.deliveries SET last_error = 'Timeout: 50%_\\' WHERE event_id = $1`, [
      two,
    ]);
    const count = async (filter: DeliveryFilter): Promise<number> => (await listed(filter)).length;
    expect(await count({})).toBe(4);
    expect(await count({ durable: 'mail' })).toBe(1);
    expect(await count({ durable: 'book' })).toBe(3);
    expect(await count({ durable: 'nobody' })).toBe(0);
    expect(await count({ type: 'billing.invoice.sent' })).toBe(1);
    expect(await count({ type: 'billing.*.paid' })).toBe(3);
    expect(await count({ type: 'other.invoice.paid' })).toBe(0);
    expect(await count({ tenantId: 'globex' })).toBe(1);
    expect(await listed({ subject: 'inv-1', durable: 'mail' })).toEqual([`${one} mail retryable`]);
    expect(await listed({ eventId: two.toUpperCase() })).toEqual([`${two} ledger retryable`]);
    expect(await listed({ error: 'TIMEOUT: 50%_\\' })).toEqual([`${two} ledger retryable`]);
    const [from] = await stage.database.query<{ at: Date }>(
      'SELECT created_at AS at FROM outbox.events WHERE id = $1',
      [other],
    );
    expect(await count({ from: from?.at as Date })).toBe(1);
    expect(await count({ to: from?.at as Date })).toBe(3);
    expect(await count({ state: 'pending' })).toBe(0);
  });

  it('page by page, without missing or repeating one, also among rows that hardly ever match', async () => {
    const ids = await past.events(1, 700);
    await past.waiting(ids, 1);
    await past.waiting(ids, 2);
    await stage.database.query(`UPDATE outbox.events SET tenant_id = 'rare' WHERE id = $1`, [ids[0]]);
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await inspector.list({}, { limit: 333, ...(cursor === undefined ? {} : { cursor }) });
      seen.push(...page.deliveries.map(({ eventId, durable }) => `${eventId} ${durable}`));
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
    expect(seen).toHaveLength(1_400);
    expect(new Set(seen).size).toBe(1_400);
    const rare = await inspector.list({ tenantId: 'rare' }, { limit: 1 });
    expect(rare.deliveries).toMatchObject([{ eventId: ids[0], durable: 'mail' }]);
    const last = await inspector.list({ tenantId: 'rare' }, { limit: 1, cursor: rare.next ?? '' });
    expect(last).toMatchObject({ deliveries: [{ eventId: ids[0], durable: 'ledger' }], next: null });
  });

  it('what is no id, or holds what no text can, matches nothing; what cannot be meant is refused by name', async () => {
    const nothing = { deliveries: [], next: null };
    expect(await inspector.list({ eventId: 'inv-42' })).toEqual(nothing);
    expect(await inspector.list({ eventId: unknown })).toEqual(nothing);
    for (const text of ['durable', 'tenantId', 'subject', 'error'] as const)
      expect(await inspector.list({ [text]: 'a\0b' })).toEqual(nothing);
    const refused = (option: string) => ({
      code: 'OUTBOX_INVALID_QUERY',
      message: expect.stringMatching(`^'${option}' `),
    });
    await expect(inspector.list({}, { cursor: 'next' })).rejects.toMatchObject(refused('cursor'));
    await expect(inspector.list({}, { limit: Number.NaN })).rejects.toMatchObject(refused('limit'));
    await expect(inspector.list({ state: 'dead' as DeliveryState })).rejects.toThrow(
      /'state' knows no 'dead'.*discarded/,
    );
    await expect(inspector.list({ type: 'billing' })).rejects.toThrow(/'type' is 'billing', which is neither/);
    await expect(inspector.list({ type: 'billing.%.%' })).rejects.toMatchObject(refused('type'));
    await expect(inspector.list({ from: new Date('soon') })).rejects.toMatchObject(refused('from'));
    expect(await inspector.get('inv-42')).toBeNull();
    expect(await inspector.get(unknown)).toBeNull();
  });

  it('an event: where it is on its way, its deliveries, its failed attempts', async () => {
    const { id } = await app.publisher.publishNow(paid, { n: 1 }, { subject: 's', headers: { from: 'test' } });
    const queued = await inspector.get(id);
    expect(queued).toMatchObject({
      event: { id, type: paid, tenantId: null, subject: 's', payload: { n: 1 }, headers: { from: 'test' } },
      relay: { state: 'queued', dueAt: expect.any(Date), tries: 0, error: null },
      deliveries: [
        { durable: 'mail', state: 'pending' },
        { durable: 'ledger', state: 'pending' },
      ],
      attempts: [],
    });
    await stage.database.query(
      `UPDATE outbox.queue SET attempts = 3, last_error = 'no stream', due_at = due_at + interval '1 minute'`,
    );
    expect((await inspector.get(id))?.relay).toMatchObject({ state: 'queued', tries: 3, error: 'no stream' });
    await stage.database.query('DELETE FROM outbox.queue');
    await past.waiting([id], 1);
    await past.failed([id], 1);
    expect(await inspector.get(id)).toMatchObject({
      relay: { state: 'forwarded', dueAt: null, tries: 0, error: null },
      deliveries: [{ durable: 'ledger', state: 'retryable' }],
      attempts: [{ durable: 'ledger', n: 1, error: 'it failed', failedAt: expect.any(Date), nextAt: null }],
    });
  });

  it('an event that is due next week stands among the scheduled ones, and is pending for its durables', async () => {
    const { id } = await app.publisher.publishNow(paid, { n: 1 }, { delay: '7d', subject: 'later' });
    expect(await inspector.get(id)).toMatchObject({
      event: { id, payload: { n: 1 }, headers: {} },
      relay: { state: 'scheduled', dueAt: expect.any(Date), tries: 0 },
      deliveries: [{ state: 'pending' }, { state: 'pending' }],
    });
    expect(await listed({ subject: 'later', durable: 'mail' })).toEqual([`${id} mail pending`]);
    await stage.database.query('SELECT outbox.cancel($1)', [id]);
    expect(await listed({ subject: 'later', durable: 'mail' })).toEqual([`${id} mail cancelled`]);
    expect((await inspector.get(id))?.relay.state).toBe('forwarded');
  });

  it('an event that is forgotten lives on in its open letter, with its history; a closed one is gone', async () => {
    const id = '0195e000-0000-7000-8000-000000000001';
    await letter(id, 'book', 'third', `now() - interval '20 days'`);
    expect(await inspector.get(id)).toMatchObject({
      event: { id, type: paid, payload: { n: 9 } },
      relay: { state: 'forwarded' },
      deliveries: [{ durable: 'ledger', state: 'discarded', attempts: 3, error: 'third' }],
      attempts: [
        { durable: 'ledger', n: 1, error: 'first' },
        { durable: 'ledger', n: 2, error: 'second' },
        { durable: 'ledger', n: 3, error: 'third' },
      ],
    });
    expect(await listed({ state: 'discarded', subject: 'inv-9' })).toEqual([`${id} ledger discarded`]);
    expect(await listed({ durable: 'ledger', error: 'THIRD' })).toEqual([`${id} ledger discarded`]);
    await stage.database.query(`UPDATE outbox.dead_letters SET resolved_at = now(), resolution = 'resolved'`);
    expect(await inspector.get(id)).toBeNull();
    expect(await listed()).toEqual([]);
  });

  it('a durable that died under two names has one row, with its last error', async () => {
    const [id = ''] = await past.events(1);
    await past.marked([id], 1, 'x');
    await letter(id, 'book', 'under the old name');
    await stage.database.query(`UPDATE outbox.dead_letters SET resolved_at = now(), resolution = 'retried'`);
    await letter(id, 'ledger', 'under the new one');
    expect(await inspector.list({ eventId: id })).toMatchObject({ deliveries: [{ error: 'under the new one' }] });
    const rows = 'SELECT durable, error FROM outbox.deliveries_state WHERE event_id = $1';
    expect(await stage.database.query(rows, [id])).toEqual([{ durable: 'ledger', error: 'under the new one' }]);
  });

  it('what could not be forwarded is discarded by the relay until somebody has it forwarded again', async () => {
    const [id = ''] = await past.events(1);
    await letter(id, '#relay', 'too large');
    expect(await listed({ durable: '#relay' })).toEqual([`${id} #relay discarded`]);
    expect((await inspector.get(id))?.relay).toEqual({ state: 'refused', dueAt: null, tries: 3, error: 'too large' });
    await stage.database.query(
      `UPDATE outbox.dead_letters SET resolved_at = clock_timestamp(), resolution = 'retried'`,
    );
    await past.queued([id]);
    expect(await listed()).toEqual([`${id} mail pending`, `${id} ledger pending`]);
    expect((await inspector.get(id))?.relay.state).toBe('queued');
  });

  it('what a broker holds, and what a back-fill has not reached, is pending; what is verified is not looked for', async () => {
    const [old = '', young = ''] = await past.events(1, 2);
    expect(await listed()).toEqual([]);
    await stage.database.query(
      `UPDATE outbox.durables SET verified_to = (SELECT created_at FROM outbox.events WHERE id = $1) WHERE name = 'mail'`,
      [young],
    );
    await stage.database.query('UPDATE outbox.durable_types SET backfill_to = $1 WHERE durable = 1', [unknown]);
    const expected = [`${young} mail pending`, `${young} ledger pending`, `${old} ledger pending`];
    expect(await listed()).toEqual(expected);
    const rows = await stage.database.query<{ event_id: string; durable: string }>(
      'SELECT event_id, durable FROM outbox.deliveries_state ORDER BY event_id DESC, durable DESC',
    );
    expect(rows.map(({ event_id, durable }) => `${event_id} ${durable} pending`)).toEqual(expected);
    await past.marked([old, young], 0, 'c');
    expect(await listed({ state: 'pending' })).toEqual([]);
  });
});

describe('the inspector beside those who work', () => {
  const stage = useStage();
  const sessions: Client[] = [];

  afterEach(async () => {
    for (const client of sessions.splice(0)) await client.end();
  });

  it('a handler in the middle is running for it, and a reader neither waits for it nor holds it up', async () => {
    const go = gate();
    const app = await stage.boot({
      manifest,
      providers: [
        subscriber(paid, 'ledger', async (event, context) => {
          await effect(event, context);
          await go.passed;
        }),
      ],
    });
    const inspector = app.app.get(OutboxInspector);
    const { id } = await app.publisher.publishNow(paid, {});
    const [running] = await eventually('the worker says that it runs', async () => {
      const { deliveries } = await inspector.list({ state: 'running' });
      return deliveries.length > 0 && deliveries;
    });
    expect(running).toMatchObject({ eventId: id, durable: 'ledger', attempts: 0, worker: expect.any(String) });
    expect(running?.since?.getTime()).toBeGreaterThanOrEqual((running?.publishedAt.getTime() ?? 0) - 50);
    const details = await inspector.get(id);
    expect(details?.deliveries).toMatchObject([{ durable: 'ledger', state: 'running' }]);
    expect(await inspector.overview()).toMatchObject({
      durables: [{ durable: 'ledger', counts: { running: 1, pending: 0 } }],
      workers: [{ running: 1 }],
    });
    go.open();
    await stage.settled();
    // The worker's word is five seconds old by now; the verdict counts.
    expect(await inspector.get(id)).toMatchObject({ deliveries: [{ state: 'completed', attempts: 1 }] });
    expect((await inspector.list({ state: ['running', 'pending'] })).deliveries).toEqual([]);
    await app.close();
  });

  it('rows that a relay has locked are listed, and stay the relay’s; a reader’s snapshot keeps nobody from them', async () => {
    const app = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    const inspector = app.app.get(OutboxInspector);
    const { id } = await app.publisher.publishNow(paid, {});
    const relay = new Client({ connectionString: stage.database.url });
    sessions.push(relay);
    await relay.connect();
    await relay.query('BEGIN');
    await relay.query('DELETE FROM outbox.queue WHERE event_id = $1', [id]);
    await relay.query('LOCK outbox.deliveries, outbox.handled IN ROW EXCLUSIVE MODE');
    expect(await inspector.get(id)).toMatchObject({ relay: { state: 'queued' }, deliveries: [{ state: 'pending' }] });
    expect((await inspector.list({ eventId: id })).deliveries).toHaveLength(1);
    expect((await inspector.overview()).queue.waiting).toBe(1);
    // While it is read, the rows may be locked by whoever skips what is locked.
    const reader = new Client({ connectionString: stage.database.url });
    sessions.push(reader);
    await reader.connect();
    await relay.query('ROLLBACK');
    await reader.query('BEGIN; SELECT * FROM outbox.deliveries_state');
    const taken = await relay.query('SELECT 1 FROM outbox.queue FOR UPDATE SKIP LOCKED');
    expect(taken.rowCount).toBe(1);
    await reader.query('COMMIT');
    await app.close();
  });
});

describeWithRoles('the inspector with an operator’s rights', () => {
  const stage = useStage();

  it('reads everything', async () => {
    const owner = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    const { id } = await owner.publisher.publishNow(paid, {});
    const role = await createRole('operator');
    try {
      for (const sql of outboxSchema.grants({ operator: role.name, publisher: role.name }))
        await stage.database.query(sql);
      const desk = await stage.boot({
        url: role.urlOf(stage.database),
        manifest,
        outbox: { role: 'publisher', schema: { onStart: 'verify' } },
      });
      const inspector = desk.app.get(OutboxInspector);
      expect(
        await inspector.list({
          state: ['pending', 'running', 'retryable', 'completed', 'discarded', 'cancelled'],
          subject: 'x',
        }),
      ).toEqual({
        deliveries: [],
        next: null,
      });
      expect((await inspector.get(id))?.relay.state).toBe('queued');
      expect((await inspector.overview({ type: paid })).queue.waiting).toBe(1);
      await desk.close();
    } finally {
      await stage.database.query(`DROP OWNED BY "${role.name}"`);
      await role.drop();
    }
  });
});
