import { OutboxInspector, SnoozeError, UnrecoverableError, type WaitTimeoutError } from 'nestjs-outbox';
import { eventually, gate } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

interface Order {
  readonly does?: 'fail once' | 'fail' | 'snooze once' | 'wait';
}

const event = 'billing.invoice.paid';
const lonely = 'billing.invoice.seen';

describe('waiting for the end of an event', () => {
  const stage = useStage();
  let app: TestApp;
  let inspector: OutboxInspector;
  /** Handlers that were asked to wait do so until it is opened. */
  let held = gate();

  const ledger = subscriber<Order>(
    event,
    'ledger',
    async (given, context) => {
      const { does } = given.payload;
      if (does === 'wait') await held.passed;
      if (does === 'fail') throw new UnrecoverableError('no such account');
      if (does === 'fail once' && context.attempt === 1) throw new Error('not yet');
      const seen = await context.manager.query('SELECT 1 FROM snoozed WHERE id = $1', [given.id]);
      if (does === 'snooze once' && seen.length === 0) {
        await stage.database.query('INSERT INTO snoozed VALUES ($1)', [given.id]);
        throw new SnoozeError('50ms');
      }
      await effect(given, context);
    },
    { backoff: ['50ms'] },
  );

  beforeAll(async () => {
    await stage.database.query('CREATE TABLE snoozed (id uuid PRIMARY KEY)');
    app = await stage.boot({
      providers: [ledger, subscriber<Order>(event, 'mail', (given, context) => effect(given, context))],
      manifest: { emits: [event, lonely] },
      outbox: { relay: { poll: '100ms' } },
    });
    inspector = app.app.get(OutboxInspector);
  });

  beforeEach(() => {
    held = gate();
  });
  afterEach(() => held.open());

  const publish = async (payload: Order = {}, options = {}) =>
    (await app.publisher.publishNow(event, payload, options)).id;
  const completed = (durable: string) => ({ durable, state: 'completed', error: null });
  const both = [completed('ledger'), completed('mail')];

  it('resolves with the outcome of every durable, and then at once', async () => {
    const id = await publish();
    expect(await inspector.wait(id)).toEqual(both);
    expect(await stage.database.query('SELECT durable FROM effects WHERE event_id = $1 ORDER BY 1', [id])).toEqual([
      { durable: 'ledger' },
      { durable: 'mail' },
    ]);
    expect(await inspector.wait(id.toUpperCase(), { timeout: 5_000 })).toEqual(both);
  });

  it('waits on through a failed attempt, and through a snooze', async () => {
    expect(await inspector.wait(await publish({ does: 'fail once' }))).toEqual(both);
    expect(await inspector.wait(await publish({ does: 'snooze once' }))).toEqual(both);
  });

  it('waits for what is due later', async () => {
    const id = await publish({}, { delay: '500ms' });
    expect(await inspector.wait(id)).toEqual(both);
    const scheduled = await publish({}, { delay: '2d' });
    const waiting = inspector.wait(scheduled);
    await stage.database.query('UPDATE outbox.scheduled SET due_at = clock_timestamp() WHERE id = $1', [scheduled]);
    // The relay learns of it at its look at what is scheduled, not from this test.
    expect(await waiting).toEqual(both);
  });

  it('what was given up has ended, with its error', async () => {
    const [dead, mail] = await inspector.wait(await publish({ does: 'fail' }));
    expect(dead).toMatchObject({ durable: 'ledger', state: 'discarded' });
    expect(dead?.error).toMatch(/^UnrecoverableError: no such account\n/);
    expect(mail).toEqual(completed('mail'));
  });

  it('what was cancelled has ended', async () => {
    const id = await publish({}, { delay: '1h' });
    const waiting = inspector.wait(id);
    await stage.database.query('SELECT outbox.cancel($1)', [id]);
    expect(await waiting).toEqual([
      { durable: 'ledger', state: 'cancelled', error: null },
      { durable: 'mail', state: 'cancelled', error: null },
    ]);
  });

  it('what was cancelled for one durable when another had handled it has ended in both ways', async () => {
    await stage.database.query(
      `INSERT INTO outbox.pauses (kind, name, durable, reason) SELECT 'durable', name, id, 'INC-42' FROM outbox.durables WHERE name = 'mail'`,
    );
    try {
      const id = await publish();
      await eventually('one has handled it, the other is parked', () =>
        stage.database.value<boolean>(
          `SELECT EXISTS (SELECT 1 FROM outbox.handled WHERE event_id = $1) AND EXISTS (SELECT 1 FROM outbox.deliveries WHERE event_id = $1 AND lease < 0)`,
          [id],
        ),
      );
      await expect(inspector.wait(id, { timeout: 0 })).rejects.toMatchObject({
        open: [
          { durable: 'mail', reason: 'paused', text: expect.stringMatching(/^durable is paused since .*: "INC-42"$/) },
        ],
      });
      const waiting = inspector.wait(id);
      await stage.database.query('SELECT outbox.cancel($1)', [id]);
      expect(await waiting).toEqual([completed('ledger'), { durable: 'mail', state: 'cancelled', error: null }]);
    } finally {
      await stage.database.query('DELETE FROM outbox.pauses');
    }
  });

  it('an event that is nobody’s has ended when it has left the queue', async () => {
    const { id } = await app.publisher.publishNow(lonely, {});
    expect(await inspector.wait(id)).toEqual([]);
    const later = await app.publisher.publishNow(lonely, {}, { delay: '1h' });
    const waiting = inspector.wait(later.id);
    await stage.database.query('SELECT outbox.cancel($1)', [later.id]);
    expect(await waiting).toEqual([{ durable: null, state: 'cancelled', error: null }]);
  });

  it('what could not be forwarded has ended', async () => {
    const { id } = await app.publisher.publishNow(event, {}, { delay: '1h' });
    const waiting = inspector.wait(id);
    await stage.database.query(
      `WITH q AS (DELETE FROM outbox.queue WHERE event_id = $1)
       INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at, error, attempts) VALUES ($1, '#relay', $2, '{}', now(), 'too large', 20)`,
      [id, event],
    );
    expect(await waiting).toEqual([{ durable: '#relay', state: 'discarded', error: 'too large' }]);
  });

  it('a timeout names what is still open and why', async () => {
    const id = await publish({ does: 'wait' });
    await eventually('the other has handled it', () =>
      stage.database.value<boolean>(
        `SELECT count(*) = 1 FROM outbox.handled h JOIN outbox.durables d ON d.id = h.durable WHERE h.event_id = $1 AND d.name = 'mail'`,
        [id],
      ),
    );
    const error = await inspector.wait(id, { timeout: '100ms' }).then(
      () => undefined,
      (e: WaitTimeoutError) => e,
    );
    expect(error).toMatchObject({ code: 'OUTBOX_WAIT_TIMEOUT', eventId: id, timeoutMs: 100 });
    expect(error?.open.map(({ durable }) => durable)).toEqual(['ledger']);
    expect(error?.message).toMatch(
      new RegExp(`^event ${id} has not ended within 100 ms: ledger is (queued|running) \\(`),
    );
    const waiting = inspector.wait(id);
    held.open();
    expect(await waiting).toEqual(both);
  });

  it('one that nobody knows is an error: at once when it is old, at the timeout when it may be uncommitted', async () => {
    const old = '019a0000-0000-7000-8000-000000000000';
    await expect(inspector.wait(old)).rejects.toMatchObject({ code: 'OUTBOX_EVENT_NOT_FOUND', eventId: old });
    await expect(inspector.wait('42')).rejects.toThrow(/no id of an event/);
    const young = await stage.database.value<string>('SELECT outbox.uuid7(clock_timestamp())');
    await expect(inspector.wait(young, { timeout: '50ms' })).rejects.toThrow(/rolled back or has not committed yet/);
  });

  it('the wait may begin before the commit', async () => {
    const { waiting } = await app.dataSource.transaction(async () => {
      const { id } = await app.publisher.publish(event, {});
      const wait = inspector.wait(id);
      await expect(inspector.wait(id, { timeout: '100ms' })).rejects.toMatchObject({ code: 'OUTBOX_EVENT_NOT_FOUND' });
      return { waiting: wait };
    });
    expect(await waiting).toEqual(both);
  });

  it('a signal ends the wait with its reason', async () => {
    const id = await publish({ does: 'wait' });
    const aborter = new AbortController();
    const waiting = inspector.wait(id, { signal: aborter.signal });
    aborter.abort(new Error('the caller has gone'));
    await expect(waiting).rejects.toThrow('the caller has gone');
    await expect(inspector.wait(id, { signal: aborter.signal })).rejects.toThrow('the caller has gone');
    held.open();
    expect(await inspector.wait(id)).toEqual(both);
  });

  it('refuses a timeout that is none', async () => {
    const id = await publish();
    await expect(inspector.wait(id, { timeout: 'soon' as '1s' })).rejects.toThrow(/'soon' is no timeout/);
    await expect(inspector.wait(id, { timeout: Number.NaN })).rejects.toThrow(TypeError);
    await expect(inspector.wait(id, { timeout: '30d' })).rejects.toThrow(/24 days/);
  });

  it('a hundred waits are answered together, each with its own outcome', async () => {
    const list = Array.from({ length: 100 }, (_, n) => ({ event, payload: n % 10 === 0 ? { does: 'fail' } : {} }));
    const published = await app.dataSource.transaction(() => app.publisher.publishMany(list));
    const ended = await Promise.all(published.map(({ id }) => inspector.wait(id)));
    expect(ended.map(([first]) => first?.state)).toEqual(
      list.map((_, n) => (n % 10 === 0 ? 'discarded' : 'completed')),
    );
  });

  it('waits in a process that publishes alone; its close rejects what is open', async () => {
    const desk = await stage.boot({ outbox: { role: 'publisher' }, manifest: { emits: [event] } });
    const theirs = desk.app.get(OutboxInspector);
    expect(await theirs.wait(await publish())).toEqual(both);
    const id = await publish({ does: 'wait' });
    const open = expect(theirs.wait(id)).rejects.toMatchObject({ code: 'OUTBOX_WAIT_STOPPED', eventId: id });
    await desk.close();
    await open;
    await expect(theirs.wait(id)).rejects.toMatchObject({ code: 'OUTBOX_WAIT_STOPPED' });
  });
});
