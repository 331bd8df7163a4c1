import { setTimeout as pause } from 'node:timers/promises';
import type { InvalidEventError, OutgoingEvent, Published, PublishOptions, Unique } from 'nestjs-outbox';
import { eventually, gate } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'webhooks.call.requested';
const other = 'webhooks.call.repeated';

describe('unique: an equal event is published once', () => {
  const stage = useStage('CREATE TABLE orders (id text PRIMARY KEY)');
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({
      providers: [
        subscriber(event, 'caller', (given, context) => effect(given, context)),
        subscriber(other, 'repeater', (given, context) => effect(given, context)),
      ],
      manifest: { emits: [event, other] },
    });
  });

  let keys = 0;
  /** Keys that no other test uses. */
  const freshKey = () => `key ${++keys}`;
  const now = (unique: Unique, payload: unknown = {}, options: PublishOptions & { tenantId?: string } = {}) =>
    app.publisher.publishNow(event, payload, { ...options, unique });
  const stored = (ids: readonly string[]) =>
    stage.database.value<number>('SELECT count(*)::int FROM outbox.events WHERE id = ANY ($1)', [ids]);
  const keyExpires = (id: string) =>
    stage.database.value<number>(
      'SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM outbox.unique_keys WHERE event_id = $1',
      [id],
    );
  const expire = (id: string) =>
    stage.database.query(`UPDATE outbox.unique_keys SET expires_at = clock_timestamp() WHERE event_id = $1`, [id]);
  const counts = () =>
    stage.database.query(
      `SELECT (SELECT count(*)::int FROM outbox.events) AS events, (SELECT count(*)::int FROM outbox.queue) AS queued,
        (SELECT count(*)::int FROM outbox.scheduled) AS scheduled, (SELECT count(*)::int FROM outbox.deliveries) AS deliveries`,
    );
  /** The backends that wait for another transaction's end. */
  const waiting = (count = 1) =>
    eventually('a publish waits for its twin', async () => {
      const sql = `SELECT count(*)::int FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'transactionid'`;
      return (await stage.database.value<number>(sql)) === count;
    });
  const handledOnce = async (ids: readonly string[]) => {
    await stage.settled();
    const rows = await stage.database.query<{ event_id: string; n: number }>(
      'SELECT event_id, count(*)::int AS n FROM effects WHERE event_id = ANY ($1) GROUP BY event_id',
      [ids],
    );
    expect(new Map(rows.map((row) => [row.event_id, row.n]))).toEqual(new Map(ids.map((id) => [id, 1])));
  };
  const codeOf = (error: unknown) => (error as { driverError?: { code?: string }; code?: string }).code;

  it('the second one with a key gets the id of the first, stores nothing and is handled once', async () => {
    const key = freshKey();
    const first = await now(key, { n: 1 });
    await stage.settled();
    const before = await counts();
    const second = await now(key, { n: 2 });
    const third = await app.dataSource.transaction(() => app.publisher.publish(event, { n: 3 }, { unique: { key } }));
    expect(first.duplicate).toBe(false);
    expect([second, third]).toEqual([
      { id: first.id, duplicate: true },
      { id: first.id, duplicate: true },
    ]);
    expect(await counts()).toEqual(before);
    await handledOnce([first.id]);
  });

  it('the event bears the hash under which its key stands', async () => {
    const { id } = await now(freshKey());
    const sql = `SELECT e.unique_key = k.key AND length(k.key) = 32 FROM outbox.events e JOIN outbox.unique_keys k ON k.event_id = e.id
      WHERE e.id = $1`;
    expect(await stage.database.value(sql, [id])).toBe(true);
    const far = await now(freshKey(), {}, { delay: '3d' });
    const scheduled = `SELECT s.unique_key = k.key FROM outbox.scheduled s JOIN outbox.unique_keys k ON k.event_id = s.id WHERE s.id = $1`;
    expect(await stage.database.value(scheduled, [far.id])).toBe(true);
    const plain = await app.publisher.publishNow(event, {});
    expect(await stage.database.value('SELECT unique_key FROM outbox.events WHERE id = $1', [plain.id])).toBeNull();
  });

  it('unique: true compares payloads, whatever the order of their names', async () => {
    const mark = freshKey();
    const first = await now(true, { mark, endpoint: 7, body: { a: 1, b: [1, 2], c: 1e21 } });
    const same = await now(true, { body: { c: 1e21, b: [1, 2], a: 1 }, gone: undefined, endpoint: 7, mark });
    const different = await Promise.all([
      now(true, { mark, endpoint: '7', body: { a: 1, b: [1, 2], c: 1e21 } }),
      now(true, { mark, endpoint: 7, body: { a: 1, b: [2, 1], c: 1e21 } }),
      now(true, { mark, endpoint: 7, body: { a: 1, b: [1, 2], c: 1e21, gone: null } }),
    ]);
    expect(same).toEqual({ id: first.id, duplicate: true });
    expect(different.map((published) => published.duplicate)).toEqual([false, false, false]);
    await handledOnce([first.id, ...different.map((published) => published.id)]);
  });

  it('a key never meets a payload', async () => {
    const payload = { mark: freshKey() };
    const text = await stage.database.value<string>('SELECT $1::jsonb::text', [JSON.stringify(payload)]);
    const published = [await now(true, payload)];
    for (const key of [text, `p${text}`, `k${text}`, 'p']) published.push(await now(key, payload));
    expect(published.map(({ duplicate }) => duplicate)).toEqual([false, false, false, false, false]);
  });

  it('two tenants, no tenant, and two types do not meet', async () => {
    const key = freshKey();
    const published = [
      await now(key),
      await now(key, {}, { tenantId: 'acme' }),
      await now(key, {}, { tenantId: 'globex' }),
      await app.publisher.publishNow(other, {}, { unique: key }),
      await app.dataSource.transaction(async (manager) => {
        await manager.query(`SELECT set_config('app.tenant_id', 'initech', true)`);
        return app.publisher.publish(event, {}, { unique: key });
      }),
    ];
    expect(published.map(({ duplicate }) => duplicate)).toEqual([false, false, false, false, false]);
    expect(await now(key, {}, { tenantId: 'acme' })).toEqual({ id: published[1]?.id, duplicate: true });
    expect(await now(key, {}, { tenantId: 'initech' })).toEqual({ id: published[4]?.id, duplicate: true });
    expect(await now(key)).toEqual({ id: published[0]?.id, duplicate: true });
    await handledOnce(published.map(({ id }) => id));
  });

  it('publishMany answers row by row; equal keys among its events are folded onto the first', async () => {
    const [a, b, c] = [freshKey(), freshKey(), freshKey()];
    const standing = await now(b);
    const before = await stage.database.value<number>('SELECT count(*)::int FROM outbox.events');
    const mark = freshKey();
    const list: OutgoingEvent[] = [
      { event, payload: { n: 0 }, unique: a },
      { event, payload: { n: 1 } },
      { event, payload: { n: 2 }, unique: b },
      { event, payload: { n: 3 }, unique: a },
      { event, payload: { n: 4 }, unique: a, tenantId: 'acme' },
      { event, payload: { mark }, unique: true },
      { event: other, payload: { n: 6 }, unique: a },
      { event, payload: { mark }, unique: true },
      { event, payload: { n: 8 }, unique: { key: c, for: '1h' }, delay: '2d' },
      { event, payload: { n: 9 }, unique: c },
      { event, payload: { n: 1 } },
    ];
    const published = await app.dataSource.transaction(() => app.publisher.publishMany(list));
    const id = (i: number) => published[i]?.id ?? '';
    expect(published.map(({ duplicate }) => duplicate)).toEqual(list.map((_, i) => [2, 3, 7, 9].includes(i)));
    expect([id(2), id(3), id(7), id(9)]).toEqual([standing.id, id(0), id(5), id(8)]);
    expect(new Set(published.map((p) => p.id)).size).toBe(8);
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.events')).toBe(before + 6);
    await handledOnce([0, 1, 4, 5, 6, 10].map(id));
  });

  it('a thousand events with two hundred keys in one call', async () => {
    const prefix = freshKey();
    const list = Array.from({ length: 1_000 }, (_, i) => ({ event, payload: { i }, unique: `${prefix} ${i % 200}` }));
    const published = await app.dataSource.transaction(() => app.publisher.publishMany(list));
    expect(published.map((p) => p.duplicate)).toEqual(list.map((_, i) => i >= 200));
    expect(published.map((p) => p.id)).toEqual(list.map((_, i) => published[i % 200]?.id));
    await handledOnce(published.slice(0, 200).map((p) => p.id));
  });

  it('inside one transaction the second is a duplicate of the first; a rolled back savepoint frees the key', async () => {
    const [a, b] = [freshKey(), freshKey()];
    const { kept, again, undone, next } = await app.dataSource.transaction(async (manager) => {
      const kept = await app.publisher.publish(event, {}, { unique: a });
      const again = await app.publisher.publish(event, {}, { unique: a });
      let undone: Published | undefined;
      await manager
        .transaction(async () => {
          undone = await app.publisher.publish(event, {}, { unique: b });
          expect(await app.publisher.publish(event, {}, { unique: a })).toEqual({ id: kept.id, duplicate: true });
          throw new Error('undo');
        })
        .catch(() => {});
      return { kept, again, undone, next: await app.publisher.publish(event, {}, { unique: b }) };
    });
    expect(again).toEqual({ id: kept.id, duplicate: true });
    expect(next.duplicate).toBe(false);
    expect(next.id).not.toBe(undone?.id);
    expect(await stored([undone?.id ?? ''])).toBe(0);
    await handledOnce([kept.id, next.id]);
  });

  describe('a twin that is not committed yet is waited for', () => {
    async function twins(first: 'commits' | 'rolls back') {
      const key = freshKey();
      const published = gate<Published>();
      const end = gate();
      const one = app.dataSource.transaction(async () => {
        published.open(await app.publisher.publish(event, { by: 'one' }, { unique: key }));
        await end.passed;
        if (first === 'rolls back') throw new Error('changed my mind');
      });
      const ended = one.catch(() => {});
      const standing = await published.passed;
      // In the middle of a transaction that has written and goes on writing.
      const two = app.dataSource.transaction(async (manager) => {
        await manager.query('INSERT INTO orders VALUES ($1)', [`before ${key}`]);
        const result = await app.publisher.publish(event, { by: 'two' }, { unique: key });
        await manager.query('INSERT INTO orders VALUES ($1)', [`after ${key}`]);
        return result;
      });
      await waiting();
      end.open();
      const [answer] = await Promise.all([two, ended]);
      const orders = 'SELECT count(*)::int FROM orders WHERE id IN ($1, $2)';
      expect(await stage.database.value(orders, [`before ${key}`, `after ${key}`])).toBe(2);
      return { standing, answer };
    }

    it('when it commits, ours is a duplicate with its id', async () => {
      const { standing, answer } = await twins('commits');
      expect(answer).toEqual({ id: standing.id, duplicate: true });
      await handledOnce([standing.id]);
    });

    it('when it rolls back, ours is published', async () => {
      const { standing, answer } = await twins('rolls back');
      expect(answer.duplicate).toBe(false);
      expect(answer.id).not.toBe(standing.id);
      expect(await stored([standing.id])).toBe(0);
      await handledOnce([answer.id]);
    });

    it('twenty publishers of one key at once: one event, and everybody knows its id', async () => {
      const key = freshKey();
      const published = await Promise.all(Array.from({ length: 20 }, (_, i) => now(key, { i })));
      expect(published.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
      expect(new Set(published.map(({ id }) => id)).size).toBe(1);
      await handledOnce([published[0]?.id ?? '']);
    });
  });

  describe('how long a key stands', () => {
    it('the default is as long as events are kept', async () => {
      const short = await stage.boot({
        manifest: { emits: [event, other] },
        outbox: { role: 'publisher', retention: { after: '36h' } },
      });
      const ofShort = async (unique: Unique) => (await short.publisher.publishNow(event, {}, { unique })).id;
      expect(await keyExpires(await ofShort(freshKey()))).toBeCloseTo(1.5 * 86_400, -3);
      expect(await keyExpires(await ofShort({ key: freshKey(), for: '2h' }))).toBeCloseTo(7_200, -3);
      await short.close();
    });

    it('7 days, unless the option says otherwise', async () => {
      const day = 86_400;
      expect(await keyExpires((await now(freshKey())).id)).toBeCloseTo(7 * day, -3);
      expect(await keyExpires((await now(true, { mark: freshKey() })).id)).toBeCloseTo(7 * day, -3);
      expect(await keyExpires((await now({ key: freshKey() })).id)).toBeCloseTo(7 * day, -3);
      expect(await keyExpires((await now({ key: freshKey(), for: '2h' })).id)).toBeCloseTo(7_200, -3);
      expect(await keyExpires((await now({ key: freshKey(), for: '3652d' })).id)).toBeCloseTo(3_652 * day, -4);
    });

    it('counts from the time at which the event is due, so that it stands until then in any case', async () => {
      const key = freshKey();
      const reminder = await now({ key, for: '1h' }, {}, { delay: '14d' });
      expect(await keyExpires(reminder.id)).toBeCloseTo(14 * 86_400 + 3_600, -3);
      expect(await now({ key, for: '1h' }, {}, { delay: '14d' })).toEqual({ id: reminder.id, duplicate: true });
      expect(
        await stage.database.value('SELECT count(*)::int FROM outbox.scheduled WHERE id = $1', [reminder.id]),
      ).toBe(1);
    });

    it('a duplicate does not prolong it', async () => {
      const key = freshKey();
      const { id } = await now({ key, for: '1h' });
      await now({ key, for: '5h' });
      expect(await keyExpires(id)).toBeLessThan(3_601);
    });

    it('an expired key is taken over by the new event, which then stands', async () => {
      const key = freshKey();
      const first = await now({ key, for: '1h' });
      await expire(first.id);
      const second = await now({ key, for: '2h' });
      expect(second.duplicate).toBe(false);
      expect(second.id).not.toBe(first.id);
      expect(await keyExpires(second.id)).toBeGreaterThan(7_000);
      expect(await now(key)).toEqual({ id: second.id, duplicate: true });
      await handledOnce([first.id, second.id]);
    });

    it('it ends by itself', async () => {
      const key = freshKey();
      const first = await now({ key, for: '50ms' });
      const second = await eventually('the key expires', async () => {
        const next = await now({ key, for: '1h' });
        return next.duplicate ? undefined : next;
      });
      expect(await now(key)).toEqual({ id: second.id, duplicate: true });
      await handledOnce([first.id, second.id]);
    });

    it('two that take an expired key over at once: one of them does', async () => {
      const key = freshKey();
      const first = await now({ key, for: '1h' });
      await expire(first.id);
      const next = await Promise.all(Array.from({ length: 8 }, () => now(key)));
      expect(next.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
      expect(new Set(next.map(({ id }) => id)).size).toBe(1);
      expect(next[0]?.id).not.toBe(first.id);
      await handledOnce([first.id, next[0]?.id ?? '']);
    });

    it('a takeover that rolls back gives the key back', async () => {
      const key = freshKey();
      const first = await now({ key, for: '1h' });
      await expire(first.id);
      const undone = app.dataSource.transaction(async () => {
        expect((await app.publisher.publish(event, {}, { unique: key })).duplicate).toBe(false);
        throw new Error('undo');
      });
      await expect(undone).rejects.toThrow('undo');
      expect((await now(key)).duplicate).toBe(false);
    });
  });

  describe('two callers, many keys', () => {
    it('publishMany in opposite orders never deadlocks', async () => {
      for (let round = 0; round < 25; round++) {
        const mine = Array.from({ length: 40 }, freshKey);
        const both = await Promise.all(
          [mine, mine.toReversed()].map((list) =>
            app.dataSource.transaction(() =>
              app.publisher.publishMany(list.map((unique) => ({ event, payload: {}, unique }))),
            ),
          ),
        );
        const winners = both.map((published) => published.filter(({ duplicate }) => !duplicate).length);
        // Whoever got the first key in the order got them all.
        expect(winners.toSorted((x, y) => x - y)).toEqual([0, 40]);
        expect(new Set(both.flat().map(({ id }) => id)).size).toBe(40);
      }
    });

    it('single publishes in opposite orders do: Postgres ends one transaction, and nothing of it is left', async () => {
      const [a, b] = [freshKey(), freshKey()];
      const have = { a: gate(), b: gate() };
      const run = (name: string, mine: typeof have.a, theirs: typeof have.a, order: string[]) =>
        app.dataSource.transaction(async (manager) => {
          await manager.query('INSERT INTO orders VALUES ($1)', [`${name} ${a}`]);
          const published = [await app.publisher.publish(event, { name }, { unique: order[0] ?? '' })];
          mine.open();
          await theirs.passed;
          published.push(await app.publisher.publish(event, { name }, { unique: order[1] ?? '' }));
          return { name, published };
        });
      const first = () => run('one', have.a, have.b, [a, b]);
      const second = () => run('two', have.b, have.a, [b, a]);
      const results = await Promise.allSettled([first(), second()]);
      const victims = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
      const winners = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
      expect(victims.map(codeOf)).toEqual(['40P01']);
      expect(winners).toHaveLength(1);
      const [winner] = winners;
      expect(winner?.published.map(({ duplicate }) => duplicate)).toEqual([false, false]);
      const orders = await stage.database.query('SELECT id FROM orders WHERE id LIKE $1', [`% ${a}`]);
      expect(orders).toEqual([{ id: `${winner?.name} ${a}` }]);
      // Repeated as a whole, both are duplicates.
      const repeated = await (winner?.name === 'one' ? second() : first());
      expect(repeated.published.map((p) => p.duplicate)).toEqual([true, true]);
      expect(repeated.published.map((p) => p.id)).toEqual(winner?.published.map((p) => p.id).toReversed());
      await handledOnce(winner?.published.map((p) => p.id) ?? []);
    });
  });

  it('a key that was published since a REPEATABLE READ transaction began is its error 40001', async () => {
    const [key, old] = [freshKey(), freshKey()];
    const standing = await now(old);
    const result = app.dataSource.transaction('REPEATABLE READ', async (manager) => {
      await manager.query('SELECT 1 FROM orders');
      // What it sees is a plain duplicate.
      expect(await app.publisher.publish(event, {}, { unique: old })).toEqual({ id: standing.id, duplicate: true });
      await now(key);
      await app.publisher.publish(event, {}, { unique: key });
    });
    expect(codeOf(await result.catch((error) => error))).toBe('40001');
  });

  const bad: readonly [what: string, unique: unknown, path: string, problem: RegExp][] = [
    ['an empty key', '', 'unique', /empty/],
    ['an empty key in an object', { key: '' }, 'unique.key', /empty/],
    ['a key that is too long', 'k'.repeat(1_001), 'unique', /1001 characters; at most 1000/],
    ['a NUL', { key: 'a\u0000' }, 'unique.key', /NUL/],
    ['half of a surrogate pair', '\ud83d', 'unique', /surrogate/],
    ['a number', 7, 'unique', /true.*a key, or \{ key, for/],
    ['false', false, 'unique', /true.*a key, or \{ key, for/],
    ['null', null, 'unique', /true.*a key, or \{ key, for/],
    ['a list', ['a'], 'unique', /true.*a key, or \{ key, for/],
    ['no key', { for: '1h' }, 'unique.key', /string, not undefined/],
    ['a key that is no string', { key: 7 }, 'unique.key', /string, not number/],
    ['an unknown part', { key: 'a', within: '1h' }, 'unique', /"within".*\{ key, for/],
    ['a bare number as lifetime', { key: 'a', for: 3_600 }, 'unique.for', /3600 is no duration.*'1h'/],
    ['a lifetime without a unit', { key: 'a', for: '5' }, 'unique.for', /"5" is no duration/],
    ['a lifetime that is no text', { key: 'a', for: { h: 1 } }, 'unique.for', /of type object is no duration/],
    ['no lifetime', { key: 'a', for: '0s' }, 'unique.for', /shorter than a millisecond/],
    ['a lifetime of centuries', { key: 'a', for: '5000d' }, 'unique.for', /longer than 10 years/],
  ];

  it.each(bad)('refused before any SQL: %s', async (_what, unique, path, problem) => {
    const options = { unique } as { unique: Unique };
    const id = await app.dataSource.transaction(async () => {
      for (const attempt of [
        () => app.publisher.publish(event, {}, options),
        () => app.publisher.publishFor('acme', event, {}, options),
        () =>
          app.publisher.publishMany([
            { event, payload: {} },
            { event, payload: {}, ...options },
          ]),
        () => app.publisher.publishNow(event, {}, options),
      ]) {
        const error: InvalidEventError = await attempt().then(
          () => Promise.reject(new Error('it was published')),
          (reason) => reason,
        );
        expect(error).toMatchObject({ name: 'InvalidEventError', path });
        expect(error.message).toMatch(problem);
      }
      return (await app.publisher.publish(event, {}, { unique: freshKey() })).id;
    });
    expect(await stored([id])).toBe(1);
  });

  it('a key of a thousand characters of four bytes is fine', async () => {
    const key = freshKey().padEnd(8) + '\u{1d11e}'.repeat(496);
    expect(key).toHaveLength(1_000);
    const { id } = await now(key);
    expect(await now(key)).toEqual({ id, duplicate: true });
  });
});

describe('a duplicate wakes nobody', () => {
  const stage = useStage();

  it('neither of publishNow nor of a transaction', async () => {
    const app = await stage.boot({
      providers: [subscriber(event, 'caller', (given, context) => effect(given, context))],
      manifest: { emits: [event] },
      outbox: { relay: { poll: '10m' } },
    });
    const lastPass = (agoMs = 0) =>
      stage.database.value<Date>(
        `SELECT query_start FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nestjs-outbox relay'
          AND state = 'idle' AND query_start < clock_timestamp() - $1 * interval '1 ms'`,
        [agoMs],
      );
    await eventually('the first pass', () => lastPass());
    const { id } = await app.publisher.publishNow(event, {}, { unique: 'once' });
    await eventually('the effect', () => stage.database.value('SELECT count(*)::int FROM effects'));
    await stage.settled();
    // Longer than between two passes of which one brought about the other.
    const before = await eventually('the relay rests', () => lastPass(300));
    expect(await app.publisher.publishNow(event, {}, { unique: 'once' })).toEqual({ id, duplicate: true });
    await app.dataSource.transaction(async () => {
      await app.publisher.publish(event, {}, { unique: 'once' });
      await app.publisher.publishMany([
        { event, payload: {}, unique: 'once' },
        { event, payload: {}, unique: 'once' },
      ]);
    });
    // A nudge is taken up within a few milliseconds; nothing is what is waited for here.
    await pause(150);
    expect(await lastPass()).toEqual(before);
    // Among duplicates one event that is none wakes the relay.
    const [, fresh] = await app.dataSource.transaction(() =>
      app.publisher.publishMany([
        { event, payload: {}, unique: 'once' },
        { event, payload: {}, unique: 'twice' },
      ]),
    );
    await eventually('its effect, long before the poll', () =>
      stage.database.value('SELECT count(*)::int FROM effects WHERE event_id = $1', [fresh?.id]),
    );
  });
});
