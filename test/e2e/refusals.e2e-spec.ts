import type { InvalidEventError, OutgoingEvent, PublishOptions } from 'nestjs-outbox';
import { useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'billing.invoice.paid';

/** What a caller without types could hand over. */
type Anything = { event: unknown; payload: unknown; tenantId?: unknown } & { [key in keyof PublishOptions]?: unknown };

const cycle: { list: unknown[] } = { list: [] };
cycle.list.push({ back: cycle });

function nested(levels: number): unknown {
  let value: unknown = 'bottom';
  for (let i = 0; i < levels; i++) value = { in: value };
  return value;
}

/** Answers in turn, beginning with the first. */
function fickle(...answers: unknown[]): () => unknown {
  let asked = 0;
  return () => answers[asked++ % answers.length];
}

const cases: readonly [what: string, given: Partial<Anything>, path: string | RegExp, problem: RegExp][] = [
  ['a NUL in a text', { payload: { a: [{ text: 'x\u0000y' }] } }, 'payload.a[0].text', /NUL/],
  ['a NUL in a name', { payload: { 'k\u0000': 1 } }, /the name of payload\[/, /NUL/],
  ['half of a surrogate pair', { payload: { text: 'x\ud83d' } }, 'payload.text', /surrogate/],
  ['half of a surrogate pair in a name', { payload: { '\udc00': 1 } }, /the name of payload\[/, /surrogate/],
  ['a BigInt', { payload: { amount: 12n } }, 'payload.amount', /BigInt/],
  ['a cycle', { payload: cycle }, 'payload.list[0].back', /refers back/],
  ['a function', { payload: { 'not-a-name': () => 1 } }, 'payload["not-a-name"]', /a function/],
  ['a symbol', { payload: [Symbol('s')] }, 'payload[0]', /a symbol/],
  ['NaN', { payload: { lines: [{ amount: 1 }, { amount: Number.NaN }] } }, 'payload.lines[1].amount', /NaN/],
  ['Infinity', { payload: Number.POSITIVE_INFINITY }, 'payload', /Infinity/],
  ['an invalid Date', { payload: { at: new Date('nonsense') } }, 'payload.at', /Invalid|cannot hold|valid/i],
  ['a Map', { payload: { byId: new Map([[1, 2]]) } }, 'payload.byId', /Map/],
  ['a Set', { payload: new Set([1]) }, 'payload', /Set/],
  ['undefined in a list', { payload: { list: [1, undefined] } }, 'payload.list[1]', /undefined/],
  ['a hole in a list', { payload: { list: new Array(2) } }, 'payload.list[0]', /undefined/],
  ['no payload', { payload: undefined }, 'payload', /undefined/],
  [
    'what toJSON makes of it',
    { payload: { money: { toJSON: () => ({ cents: 1n }) } } },
    'payload.money.cents',
    /BigInt/,
  ],
  ['an error, whose message JSON drops', { payload: { cause: new Error('boom') } }, 'payload.cause', /an? Error/],
  [
    'a toJSON that throws',
    {
      payload: {
        money: {
          toJSON: () => {
            throw new Error('no currency');
          },
        },
      },
    },
    'payload',
    /no currency/,
  ],
  [
    'a toJSON that answers otherwise the second time',
    { payload: { a: { toJSON: fickle('fine', 'x\u0000y') }, b: { toJSON: fickle('fine', '\ud83d') } } },
    'payload',
    /reads differently/,
  ],
  [
    'a toJSON that has nothing to say',
    { payload: { toJSON: fickle('fine', undefined) } },
    'payload',
    /reads differently/,
  ],
  ['more bytes than allowed', { payload: { text: 'ü'.repeat(600) } }, 'payload', /1211 bytes.*at most 1024/],
  ['too deep nesting', { payload: nested(600) }, /^payload(\.in){512}$/, /deeper than 512/],
  ['a type with two tokens', { event: 'invoice.paid' }, 'its type', /three lower-case tokens/],
  ['a type in capitals', { event: 'Billing.Invoice.Paid' }, 'its type', /three lower-case tokens/],
  ['a pattern', { event: 'billing.*.paid' }, 'its type', /three lower-case tokens/],
  ['a type that ends in a new line', { event: `${event}\n` }, 'its type', /three lower-case tokens/],
  ['a type that is too long', { event: `billing.invoice.${'p'.repeat(120)}` }, 'its type', /136 characters/],
  [
    'a type that no module emits',
    { event: 'billing.invoice.payed' },
    'its type',
    /did you mean 'billing\.invoice\.paid'.*forFeature/,
  ],
  ['a type of 300 characters', { event: `a.b.${'c'.repeat(296)}` }, 'its type', /300 characters; at most 128/],
  ['a tenant of 300 characters', { tenantId: 't'.repeat(300) }, 'the tenant', /300 characters; at most 255/],
  ['a subject of 300 characters', { subject: 's'.repeat(300) }, 'the subject', /300 characters; at most 255/],
  ['nesting a thousand deep', { payload: nested(1_000) }, /^payload(\.in){512}$/, /deeper than 512/],
  ['a type that is no string', { event: 7 }, 'its type', /not number/],
  ['an empty tenant', { tenantId: '' }, 'the tenant', /empty/],
  ['a tenant that is no string', { tenantId: 7 }, 'the tenant', /not number/],
  ['a NUL in the tenant', { tenantId: 'a\u0000' }, 'the tenant', /NUL/],
  ['an empty subject', { subject: '' }, 'the subject', /empty/],
  ['a subject that is too long', { subject: 's'.repeat(256) }, 'the subject', /256 characters/],
  ['half of a surrogate pair in the subject', { subject: '\ud83d' }, 'the subject', /surrogate/],
  ['a bare number as delay', { delay: 5_000 }, 'delay', /no duration.*'30s'/],
  ['a negative delay', { delay: '-5s' }, 'delay', /no duration/],
  ['a delay of centuries', { delay: '100000d' }, 'delay', /10 years/],
  ['both delay and runAt', { delay: '1s', runAt: new Date() }, 'delay', /runAt were both given/],
  ['a runAt that is no Date', { runAt: '2027-01-01' }, 'runAt', /valid Date/],
  ['an invalid runAt', { runAt: new Date('nonsense') }, 'runAt', /valid Date/],
  ['a runAt in centuries', { runAt: new Date('2999-01-01') }, 'runAt', /10 years/],
  ['a header that is no string', { headers: { 'x-n': 7 } }, 'headers["x-n"]', /not number/],
  ['headers that are a list', { headers: ['a'] }, 'headers', /object of strings/],
  ['a NUL in a header', { headers: { trace: '\u0000' } }, 'headers.trace', /NUL/],
  ['too many headers', { headers: { big: 'h'.repeat(17_000) } }, 'headers', /at most 16384/],
];

describe('every refusal comes before any SQL', () => {
  const stage = useStage();
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({
      manifest: { emits: [event, `a.b.${'c'.repeat(124)}`] },
      outbox: { role: 'publisher', maxEventBytes: 1_024 },
    });
  });

  it.each(cases)('%s', async (_what, given, path, problem) => {
    const { event: type, payload, tenantId, ...options } = { event, payload: {}, ...given } as OutgoingEvent;
    const tries: (() => Promise<unknown>)[] = [
      () =>
        app.publisher.publishMany([
          { event, payload: {} },
          { event: type, payload, ...(tenantId === undefined ? {} : { tenantId }), ...options },
        ]),
      () => app.publisher.publishNow(type, payload, { ...options, ...(tenantId === undefined ? {} : { tenantId }) }),
      tenantId === undefined
        ? () => app.publisher.publish(type, payload, options)
        : () => app.publisher.publishFor(tenantId, type, payload, options),
    ];
    const before = await stage.database.value('SELECT count(*)::int FROM outbox.events');
    const committed = await app.dataSource.transaction(async (manager) => {
      for (const attempt of tries) {
        const error: InvalidEventError = await attempt().then(
          () => Promise.reject(new Error('it was published')),
          (reason) => reason,
        );
        expect(error).toMatchObject({ name: 'InvalidEventError', code: 'OUTBOX_INVALID_EVENT', retryable: false });
        if (typeof path === 'string') expect(error.path).toBe(path);
        else expect(error.path).toMatch(path);
        expect(error.message).toMatch(problem);
        expect(error.message).toContain(error.path);
      }
      // The transaction is as good as new: it reads, publishes and commits.
      await manager.query('INSERT INTO effects (note) VALUES ($1)', ['after the refusal']);
      return app.publisher.publish(event, {});
    });
    const after = await stage.database.query('SELECT id FROM outbox.events WHERE id = $1', [committed.id]);
    expect(after).toHaveLength(1);
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.events')).toBe(Number(before) + 1);
  });

  it('an event at each limit is not refused', async () => {
    const id = await app.dataSource.transaction(async () => {
      const { id } = await app.publisher.publish(`a.b.${'c'.repeat(124)}`, 'x'.repeat(1_022), {
        subject: 's'.repeat(255),
        headers: { h: 'x'.repeat(16_384 - 8) },
        delay: '3652d',
      });
      return id;
    });
    const sizes =
      'SELECT length(type) AS type, length(payload::text) AS payload, length(subject) AS subject FROM outbox.scheduled WHERE id = $1';
    expect(await stage.database.query(sizes, [id])).toEqual([{ type: 128, payload: 1_024, subject: 255 }]);
    await app.publisher.publishNow(event, nested(100));
  });

  it('what JSON leaves out or converts by itself is not refused', async () => {
    const at = new Date('2026-01-02T03:04:05Z');
    const payload = { optional: undefined, at, toJSON: undefined, twice: [at, at], none: null, emoji: '🙂' };
    const { id } = await app.publisher.publishNow(event, payload);
    const iso = at.toISOString();
    expect(await stage.database.value('SELECT payload FROM outbox.events WHERE id = $1', [id])).toEqual({
      at: iso,
      twice: [iso, iso],
      none: null,
      emoji: '🙂',
    });
  });
});
