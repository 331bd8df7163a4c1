import { type DeadLetterNotice, DeadLetters, UnrecoverableError } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

interface Order {
  readonly error?: string;
  readonly unrecoverable?: boolean;
}

const event = 'billing.invoice.paid';

describe('after maxAttempts there is one row in dead_letters, and nothing redelivers from it by itself', () => {
  const stage = useStage('CREATE TABLE switches (durable text PRIMARY KEY)');
  /** Runs of both durables, with the attempt. */
  const runs: { eventId: string; durable: string; attempt: number }[] = [];
  const notices: DeadLetterNotice[] = [];
  let hookThrows = false;
  let app: TestApp;
  let letters: DeadLetters;

  const boot = () =>
    stage.boot({
      providers: ['ledger', 'mail'].map((durable) =>
        subscriber<Order>(
          event,
          durable,
          async (given, context) => {
            runs.push({ eventId: given.id, durable, attempt: context.attempt });
            await effect(given, context);
            const [works] = await context.manager.query('SELECT 1 FROM switches WHERE durable = $1', [durable]);
            if (works) return;
            if (given.payload.unrecoverable) throw new UnrecoverableError('no such customer');
            throw new Error(given.payload.error ?? `failure ${context.attempt}`);
          },
          { maxAttempts: durable === 'ledger' ? 3 : 1, backoff: ['5ms'] },
        ),
      ),
      manifest: { emits: [event] },
      outbox: {
        relay: { poll: '50ms' },
        onDeadLetter: async (letter) => {
          notices.push(letter);
          if (hookThrows) throw new Error('the pager is broken');
        },
      },
    });

  beforeAll(async () => {
    await stage.database.query(`INSERT INTO switches VALUES ('mail')`);
    app = await boot();
    letters = app.app.get(DeadLetters);
  });

  beforeEach(async () => {
    await stage.database.query('TRUNCATE outbox.dead_letters');
    await works('ledger', false);
    hookThrows = false;
  });

  const works = async (durable: string, does: boolean) => {
    await stage.database.query('DELETE FROM switches WHERE durable = $1', [durable]);
    if (does) await stage.database.query('INSERT INTO switches VALUES ($1)', [durable]);
  };
  const runsOf = (id: string, durable = 'ledger') =>
    runs.filter((run) => run.eventId === id && run.durable === durable).map((run) => run.attempt);
  const rows = (id: string) => stage.database.query('SELECT * FROM outbox.dead_letters WHERE event_id = $1', [id]);
  const verdict = (id: string, durable = 'ledger') =>
    stage.database.value<string | undefined>(
      `SELECT h.verdict FROM outbox.handled h JOIN outbox.durables d ON d.id = h.durable WHERE h.event_id = $1 AND d.name = $2`,
      [id, durable],
    );
  const publishDying = async (payload: Order = {}, options = {}) => {
    const { id } = await app.publisher.publishNow(event, payload, options);
    await eventually('the dead letter', async () => (await rows(id)).length);
    await stage.drained();
    return id;
  };

  it('the letter holds the whole event, the last error and the history', async () => {
    const id = await publishDying({}, { subject: 'i-1', tenantId: 'acme', headers: { trace: 't' } });
    expect(runsOf(id)).toEqual([1, 2, 3]);
    const [letter, ...more] = await letters.list();
    expect(more).toEqual([]);
    expect(letter).toMatchObject({
      eventId: id,
      durable: 'ledger',
      type: event,
      tenantId: 'acme',
      subject: 'i-1',
      payload: {},
      headers: { trace: 't' },
      attempts: 3,
    });
    expect(letter?.error).toMatch(/^Error: failure 3\n\s+at /);
    expect(letter?.history.map(({ n, error }) => [n, error.split('\n')[0]])).toEqual([
      [1, 'Error: failure 1'],
      [2, 'Error: failure 2'],
    ]);
    expect(letter?.deadAt.getTime()).toBeGreaterThan(Date.parse('2020-01-01'));
    expect(await verdict(id)).toBe('x');
    // The other durable has handled the event, and nothing that failed has left an effect.
    expect(await verdict(id, 'mail')).toBe('d');
    expect(await stage.database.query('SELECT durable FROM effects WHERE event_id = $1', [id])).toEqual([
      { durable: 'mail' },
    ]);
  });

  it('UnrecoverableError ends it at the first attempt', async () => {
    const id = await publishDying({ unrecoverable: true });
    expect(runsOf(id)).toEqual([1]);
    expect(await letters.list()).toMatchObject([{ eventId: id, attempts: 1, history: [] }]);
    expect((await letters.list())[0]?.error).toMatch(/^UnrecoverableError: no such customer/);
  });

  it('the hook is told once, and an error line says it in any case', async () => {
    hookThrows = true;
    const id = await publishDying({}, { tenantId: 'acme' });
    const told = await eventually('the hook', () => notices.filter((n) => n.eventId === id));
    expect(told).toEqual([
      {
        eventId: id,
        durable: 'ledger',
        type: event,
        tenantId: 'acme',
        attempts: 3,
        error: expect.stringMatching(/^Error: failure 3/),
      },
    ]);
    const said = new RegExp(`^error onDeadLetter failed for event ${id}: the pager is broken$`);
    await eventually('the log', () => app.log.matching(said).length);
    expect(
      app.log.matching(
        new RegExp(`^error dead letter: 'ledger' gave up on ${event} ${id} after 3 attempts: Error: failure 3$`),
      ),
    ).toHaveLength(1);
    // The hook's failure is nobody's but its own: the verdict stands, and the next event is handled.
    expect(await verdict(id)).toBe('x');
    await works('ledger', true);
    const next = await app.publisher.publishNow(event, {});
    await eventually('the next one', async () => (await verdict(next.id)) === 'd');
  });

  it('list filters by durable and tenant, and pages in order', async () => {
    await works('mail', false);
    const list = Array.from({ length: 7 }, (_, i) => ({
      event,
      payload: { unrecoverable: true },
      tenantId: i % 2 ? 'odd' : 'even',
    }));
    await app.dataSource.transaction(() => app.publisher.publishMany(list));
    await eventually('all are dead', async () => (await letters.list()).length === 14);
    await works('mail', true);
    const all = await letters.list();
    expect(all.map((l) => l.deadAt.getTime())).toEqual(all.map((l) => l.deadAt.getTime()).toSorted((a, b) => a - b));
    expect(await letters.list({ durable: 'mail' })).toEqual(all.filter((l) => l.durable === 'mail'));
    expect(await letters.list({ tenantId: 'odd' })).toEqual(all.filter((l) => l.tenantId === 'odd'));
    expect(await letters.list({ tenantId: 'odd', durable: 'ledger' })).toHaveLength(3);
    expect(await letters.list({ durable: 'nobody' })).toEqual([]);
    const paged: typeof all = [];
    for (;;) {
      const after = paged.at(-1);
      const page = await letters.list(after ? { limit: 4, after } : { limit: 4 });
      if (page.length === 0) break;
      expect(page.length).toBeLessThanOrEqual(4);
      paged.push(...page);
    }
    expect(paged).toEqual(all);
  });

  it('retry handles the event again, by that durable alone, from attempt 1', async () => {
    await works('mail', false);
    const { id } = await app.publisher.publishNow(event, {});
    await eventually('both are dead', async () => (await rows(id)).length === 2);
    await works('ledger', true);
    await works('mail', true);
    expect(await letters.retry(id, 'ledger')).toBe(true);
    await eventually('it is done', async () => (await verdict(id)) === 'd');
    expect(runsOf(id)).toEqual([1, 2, 3, 1]);
    expect(runsOf(id, 'mail')).toEqual([1]);
    expect(await verdict(id, 'mail')).toBe('x');
    expect((await letters.list()).map((l) => l.durable)).toEqual(['mail']);
    expect(await letters.retry(id, 'ledger')).toBe(false);
  });

  it('a retry that fails again ends in the same one row, open again', async () => {
    const id = await publishDying({ error: 'first round' });
    expect(await letters.retry(id, 'ledger')).toBe(true);
    await eventually('dead again', async () => (await letters.list()).length === 1 && (await verdict(id)) === 'x');
    expect(runsOf(id)).toEqual([1, 2, 3, 1, 2, 3]);
    expect(await rows(id)).toMatchObject([{ attempts: 3, resolved_at: null, resolution: null }]);
  });

  it('of two operators who retry at the same time one is first', async () => {
    const id = await publishDying();
    await works('ledger', true);
    const answers = await Promise.all(Array.from({ length: 6 }, () => letters.retry(id, 'ledger')));
    expect(answers.toSorted()).toEqual([false, false, false, false, false, true]);
    await eventually('it is done', async () => (await verdict(id)) === 'd');
    expect(runsOf(id)).toEqual([1, 2, 3, 1]);
  });

  it('resolve closes a letter without handling the event', async () => {
    const id = await publishDying();
    expect(await letters.resolve(id, 'ledger', 'refunded by hand')).toBe(true);
    expect(await letters.resolve(id, 'ledger')).toBe(false);
    expect(await letters.retry(id, 'ledger')).toBe(false);
    expect(await letters.list()).toEqual([]);
    expect(await rows(id)).toMatchObject([{ resolution: 'refunded by hand' }]);
    expect(await verdict(id)).toBe('x');
    expect(runsOf(id)).toEqual([1, 2, 3]);
  });

  it('a retry that nobody could carry out leaves the letter open', async () => {
    const id = await publishDying();
    await stage.database.query("UPDATE outbox.durables SET name = 'gone' WHERE name = 'ledger'");
    expect(await letters.retry(id, 'ledger')).toBe(false);
    expect(await rows(id)).toMatchObject([{ resolved_at: null }]);
    await stage.database.query("UPDATE outbox.durables SET name = 'ledger' WHERE name = 'gone'");
    await works('ledger', true);
    expect(await letters.retry(id, 'ledger')).toBe(true);
    await eventually('it is done', async () => (await verdict(id)) === 'd');
  });

  it('a retry without letter, or after the event was forgotten, changes nothing', async () => {
    expect(await letters.retry('00000000-0000-7000-8000-000000000000', 'ledger')).toBe(false);
    const id = await publishDying();
    await stage.database.query('DELETE FROM outbox.events WHERE id = $1', [id]);
    expect(await letters.retry(id, 'ledger')).toBe(false);
    expect(await letters.list()).toHaveLength(1);
  });

  it('neither a further delivery nor a restart runs it again', async () => {
    const id = await publishDying();
    await stage.database.query(
      `INSERT INTO outbox.deliveries (event_id, durable) SELECT $1, id FROM outbox.durables WHERE name = 'ledger'`,
      [id],
    );
    await stage.drained();
    await works('ledger', true);
    await app.close();
    app = await boot();
    letters = app.app.get(DeadLetters);
    const { id: later } = await app.publisher.publishNow(event, {});
    await eventually('the restarted app works', async () => (await verdict(later)) === 'd');
    await stage.drained();
    expect(runsOf(id)).toEqual([1, 2, 3]);
    expect(await verdict(id)).toBe('x');
    expect(await letters.list()).toHaveLength(1);
  });
});

describe('what a failure may look like', () => {
  const stage = useStage();
  const thrown: Record<string, () => unknown> = {
    nul: () => new Error(`a\u0000b`),
    surrogate: () => new Error(`a\ud83db`),
    megabyte: () => new Error('ü'.repeat(1_000_000)),
    string: () => 'just a string',
    nothing: () => undefined,
    object: () => ({ reason: 'no Error at all' }),
    cyclic: () => {
      const self: { self?: unknown } = {};
      self.self = self;
      return self;
    },
    hostile: () =>
      Object.defineProperty(new Error('x'), 'message', {
        get: () => {
          throw new Error('reading me throws');
        },
      }),
    cause: () => new Error('outside', { cause: new Error('inside') }),
  };
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({
      providers: [
        subscriber<{ kind: string }>(
          'test.error.asked',
          'thrower',
          (given) => {
            throw thrown[given.payload.kind]?.();
          },
          { maxAttempts: 2, backoff: ['5ms'] },
        ),
      ],
      manifest: { emits: ['test.error.asked'] },
      outbox: { relay: { poll: '50ms' } },
    });
  });

  it.each(Object.keys(thrown))('%s: it is recorded, on both attempts', async (kind) => {
    const { id } = await app.publisher.publishNow('test.error.asked', { kind });
    await eventually('the dead letter', () =>
      stage.database.value<number>('SELECT count(*)::int FROM outbox.dead_letters WHERE event_id = $1', [id]),
    );
    const errors = await stage.database.query<{ n: number; error: string; bytes: number }>(
      'SELECT n, error, octet_length(error) AS bytes FROM outbox.attempts WHERE event_id = $1 ORDER BY n',
      [id],
    );
    expect(errors.map((e) => e.n)).toEqual([1, 2]);
    for (const { error, bytes } of errors) {
      expect(error.length).toBeGreaterThan(0);
      expect(bytes).toBeLessThanOrEqual(8 * 1024);
    }
    const says: Record<string, RegExp> = {
      nul: /a\u2400b/,
      surrogate: /a\ufffdb/,
      megabyte: /ü…$/,
      string: /just a string/,
      object: /no Error at all/,
      cause: /outside.*inside/s,
    };
    expect(errors[0]?.error).toMatch(says[kind] ?? /./);
  });
});
