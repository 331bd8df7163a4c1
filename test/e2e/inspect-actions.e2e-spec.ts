import { DeadLetters, type DeliveryContext, type OutboxEvent, OutboxInspector } from 'nestjs-outbox';
import { eventually, gate } from '../support/eventually.js';
import { itOfRows } from '../support/of-rows.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const paid = 'test.invoice.paid';
const voided = 'test.invoice.voided';
const manifest = { emits: [paid, voided] };
const nobody = '019a0000-0000-7000-8000-000000000000';

interface Task {
  readonly does?: 'fail' | 'wait';
}

describe('an operator’s action', () => {
  const stage = useStage();
  let app: TestApp;
  let inspector: OutboxInspector;
  let broken = true;
  let entered = gate();
  let leave = gate();

  const handle = async (event: OutboxEvent<Task>, context: DeliveryContext) => {
    if (event.payload.does === 'fail' && broken) throw new Error('asked to fail');
    if (event.payload.does === 'wait') {
      entered.open();
      await leave.passed;
    }
    await effect(event, context);
  };

  beforeAll(async () => {
    app = await stage.boot({
      manifest,
      providers: [
        subscriber(paid, 'ledger', handle, { maxAttempts: 1 }),
        subscriber(paid, 'ladder', handle, { maxAttempts: 3, backoff: ['1h'] }),
      ],
    });
    inspector = app.app.get(OutboxInspector);
  });

  beforeEach(() => {
    broken = true;
    entered = gate();
    leave = gate();
  });

  const publish = async (payload: Task = {}) => (await app.publisher.publishNow(paid, payload)).id;
  const runs = (id: string, durable: string) =>
    stage.database.value<number>('SELECT count(*)::int FROM effects WHERE event_id = $1 AND durable = $2', [
      id,
      durable,
    ]);
  const ran = (id: string, durable: string, times = 1) =>
    eventually(`'${durable}' ran ${times} times`, async () => (await runs(id, durable)) === times);
  const dead = (id: string, durable: string) =>
    eventually('it is dead', () =>
      stage.database.value<boolean>(
        'SELECT count(*) = 1 FROM outbox.dead_letters WHERE event_id = $1 AND durable = $2 AND resolved_at IS NULL',
        [id, durable],
      ),
    );
  const waits = (id: string, durable: string) =>
    eventually('it waits for its next attempt', () =>
      stage.database.value<boolean>(
        `SELECT count(*) = 1 FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable
         WHERE d.event_id = $1 AND n.name = $2 AND d.lease IS NULL AND d.attempt = 1`,
        [id, durable],
      ),
    );
  const parked = (id: string, rows = 1) =>
    eventually('it is parked', () =>
      stage.database.value<boolean>(
        'SELECT count(*) = $2::int FROM outbox.deliveries WHERE event_id = $1 AND lease < 0',
        [id, rows],
      ),
    );
  const audited = (id: string) =>
    stage.database.query(
      `SELECT who, action, what, why FROM outbox.audit WHERE what::text LIKE '%' || $1 || '%' ORDER BY id`,
      [id],
    );

  it('retry runs a dead letter again, by its durable alone, and says so once', async () => {
    const id = await publish({ does: 'fail' });
    await dead(id, 'ledger');
    await waits(id, 'ladder');
    broken = false;
    const outcomes = await Promise.all(
      ['ann', 'bob'].map((by) => inspector.retry(id, 'ledger', { by, reason: 'fixed in 1.2' })),
    );
    expect(outcomes.map(({ outcome }) => outcome).sort()).toEqual(['done', 'unchanged']);
    await ran(id, 'ledger');
    expect(await runs(id, 'ladder')).toBe(0);
    const winner = outcomes[0]?.outcome === 'done' ? 'ann' : 'bob';
    expect(await audited(id)).toEqual([
      { who: winner, action: 'retry', what: { count: 1, deliveries: { ledger: [id] } }, why: 'fixed in 1.2' },
    ]);
    expect(await inspector.retry(id, 'ledger')).toMatchObject({ outcome: 'unchanged' });
  });

  it('retry lets what waits for its next attempt run now', async () => {
    const id = await publish({ does: 'fail' });
    await waits(id, 'ladder');
    broken = false;
    expect(await inspector.retry(id, 'ladder')).toEqual({
      eventId: id,
      durable: 'ladder',
      outcome: 'done',
      detail: null,
    });
    await ran(id, 'ladder');
    expect(await stage.database.query('SELECT attempt FROM effects WHERE event_id = $1', [id])).toEqual([
      { attempt: 2 },
    ]);
    expect(await inspector.retry(id, 'ladder')).toMatchObject({ outcome: 'unchanged', detail: 'it was handled' });
  });

  it('retry says what keeps it from running: no event, no durable, a retired one, a pause', async () => {
    const id = await publish({ does: 'fail' });
    await dead(id, 'ledger');
    expect(await inspector.retry(nobody, 'ledger')).toMatchObject({ outcome: 'not-found' });
    expect(await inspector.retry('42', 'ledger')).toMatchObject({ outcome: 'not-found' });
    expect(await inspector.retry(id, 'nobody')).toMatchObject({
      outcome: 'not-found',
      detail: "there is no durable 'nobody' (any more)",
    });
    await stage.database.query(`UPDATE outbox.durables SET state = 'retired' WHERE name = 'ledger'`);
    expect(await inspector.retry(id, 'ledger')).toMatchObject({
      outcome: 'failed',
      detail: expect.stringMatching(/retired.*revive/),
    });
    // The older way says so, too, and leaves the letter open.
    expect(await app.app.get(DeadLetters).retry(id, 'ledger')).toBe(false);
    await stage.database.query(`UPDATE outbox.durables SET state = 'active' WHERE name = 'ledger'`);
    await stage.database.query(`WITH e AS (DELETE FROM outbox.events WHERE id = $1 RETURNING id) SELECT id FROM e`, [
      id,
    ]);
    expect(await inspector.retry(id, 'ledger')).toMatchObject({
      outcome: 'failed',
      detail: expect.stringMatching(/forgotten/),
    });
    await inspector.discard({ eventId: id });
    expect(await inspector.retry(id, 'ledger')).toMatchObject({
      outcome: 'unchanged',
      detail: expect.stringMatching(/closed.*discarded/),
    });
    await stage.database.query('DELETE FROM outbox.deliveries WHERE event_id = $1', [id]);

    await inspector.pause({ durable: 'ladder' });
    const held = await publish();
    await parked(held);
    expect(await inspector.retry(held, 'ladder')).toMatchObject({
      outcome: 'unchanged',
      detail: /paused \(pause \d+\)/,
    });
    expect(await inspector.send(held, { to: 'ladder', force: true })).toMatchObject({ outcome: 'unchanged' });
    await inspector.resume({ durable: 'ladder' });
    await ran(held, 'ladder');
  });

  it('send delivers to a durable that registered later', async () => {
    const id = await publish();
    await ran(id, 'ledger');
    const later = await stage.boot({ manifest, providers: [subscriber(paid, 'later', handle)] });
    expect(await inspector.send(id, { to: 'later', by: 'ann', reason: 'was late' })).toMatchObject({ outcome: 'done' });
    await ran(id, 'later');
    expect(await audited(id)).toEqual([
      { who: 'ann', action: 'send', what: { event: id, durable: 'later', force: false }, why: 'was late' },
    ]);
    expect(await inspector.send(id, { to: 'later' })).toMatchObject({
      outcome: 'unchanged',
      detail: 'it was handled; with --force (force: true) its handler runs once more',
    });
    await later.close();
  });

  it('send with force runs a handler once more, whoever asks for it at the same time', async () => {
    const id = await publish();
    await ran(id, 'ledger');
    await inspector.pause({ durable: 'ledger' });
    const outcomes = await Promise.all([1, 2, 3].map(() => inspector.send(id, { to: 'ledger', force: true })));
    expect(outcomes.map(({ outcome }) => outcome).sort()).toEqual(['done', 'unchanged', 'unchanged']);
    await inspector.resume({ durable: 'ledger' });
    await ran(id, 'ledger', 2);
    expect(await runs(id, 'ladder')).toBeLessThanOrEqual(1);
  });

  it('send with force closes the dead letter, and runs what was cancelled', async () => {
    const id = await publish({ does: 'fail' });
    await dead(id, 'ledger');
    broken = false;
    expect(await inspector.send(id, { to: 'ledger' })).toMatchObject({
      outcome: 'unchanged',
      detail: expect.stringMatching(/given up/),
    });
    expect(await inspector.send(id, { to: 'ledger', force: true })).toMatchObject({ outcome: 'done' });
    await ran(id, 'ledger');
    expect(await stage.database.query('SELECT resolution FROM outbox.dead_letters WHERE event_id = $1', [id])).toEqual([
      { resolution: 'sent' },
    ]);

    // Nobody has it yet, so it is cancelled for everybody.
    await inspector.pause({ type: paid });
    const cancelled = await publish();
    await parked(cancelled, 2);
    await stage.database.query('SELECT * FROM outbox.cancel($1)', [cancelled]);
    await inspector.resume({ type: paid });
    // One that registers later, and is given its history, was to get it too.
    await stage.database.query(`WITH d AS (INSERT INTO outbox.durables (name, seen_at) VALUES ('historian', now()) RETURNING id)
      INSERT INTO outbox.durable_types (durable, pattern, matcher, since) SELECT id, '${paid}', '${paid}', '-infinity' FROM d`);
    expect(await inspector.send(cancelled, { to: 'ledger' })).toMatchObject({
      outcome: 'unchanged',
      detail: expect.stringMatching(/cancelled/),
    });
    expect(await inspector.send(cancelled, { to: 'ledger', force: true })).toMatchObject({ outcome: 'done' });
    await ran(cancelled, 'ledger');
    const { findings } = await inspector.explain({ id: cancelled });
    expect(findings.map(({ durable, reason }) => [durable, reason])).toContainEqual(['historian', 'cancelled']);
    await stage.database.query(`UPDATE outbox.durables SET state = 'retired' WHERE name = 'historian'`);
  });

  itOfRows('send leaves what a handler has at this moment', async () => {
    const id = await publish({ does: 'wait' });
    await entered.passed;
    expect(await inspector.send(id, { to: 'ledger', force: true })).toMatchObject({
      outcome: 'unchanged',
      detail: 'a worker has it now',
    });
    leave.open();
    await ran(id, 'ledger');
    await ran(id, 'ladder');
  });

  it('send refuses a durable that is unknown, retired, or gets nothing of that type', async () => {
    const id = await publish();
    await ran(id, 'ledger');
    await expect(inspector.send(id, { to: 'ledgre' })).rejects.toMatchObject({
      code: 'OUTBOX_UNKNOWN_DURABLE',
      message: expect.stringContaining("did you mean 'ledger'?"),
    });
    expect(await inspector.send(nobody, { to: 'ledger' })).toMatchObject({ outcome: 'not-found' });
    const other = (await app.publisher.publishNow(voided, {})).id;
    expect(await inspector.send(other, { to: 'ledger' })).toMatchObject({
      outcome: 'failed',
      detail: "'ledger' does not get events of this type",
    });
    await stage.database.query(`UPDATE outbox.durables SET state = 'retired' WHERE name = 'ledger'`);
    expect(await inspector.send(id, { to: 'ledger', force: true })).toMatchObject({
      outcome: 'failed',
      detail: expect.stringMatching(/retired/),
    });
    await stage.database.query(`UPDATE outbox.durables SET state = 'active' WHERE name = 'ledger'`);
  });
});
