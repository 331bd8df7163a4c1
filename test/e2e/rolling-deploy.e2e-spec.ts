import { setTimeout as pause } from 'node:timers/promises';
import { defineEvent, type EventManifest, type SubscribeOptions } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { itOfRows } from '../support/of-rows.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

/** What a version of the app subscribes to: the durable, its types, its options. */
type Version = readonly (readonly [durable: string, types: Type | readonly Type[], options?: SubscribeOptions])[];
type Type = NonNullable<EventManifest['accepts']>[number];

describe('a rolling deploy loses nothing and repeats nothing', () => {
  const stage = useStage('CREATE INDEX ON effects (event_id, durable)');

  /** A pod of one version. */
  const pod = (name: string, version: Version) =>
    stage.boot({
      manifest: { accepts: version.flatMap(([, types]) => types) },
      providers: version.map(([durable, types, options]) =>
        subscriber(types as string, durable, (given, context) => effect(given, context, '', name), options),
      ),
      outbox: { role: 'worker', schema: { onStart: 'migrate' }, relay: { poll: '50ms' } },
    });
  const api = (...emits: string[]) => stage.boot({ manifest: { emits }, outbox: { role: 'publisher' } });

  /** Publishes one event of each type every few milliseconds until it is told to stop. */
  function trickle({ publisher }: TestApp, ...types: string[]) {
    const ids: Record<string, string[]> = Object.fromEntries(types.map((type) => [type, []]));
    let open = true;
    const running = (async () => {
      for (; open; await pause(5)) for (const type of types) ids[type]?.push((await publisher.publishNow(type, {})).id);
    })();
    return {
      /** So far. */
      of: (type: string) => [...(ids[type] ?? [])],
      /** Until so many more are committed. */
      async more(type: string, n = 20) {
        const from = ids[type]?.length ?? 0;
        await eventually('more events', () => (ids[type]?.length ?? 0) >= from + n);
      },
      async stop() {
        open = false;
        await running;
        return ids;
      },
    };
  }

  /** One entry for each effect, so that one that is there twice shows. */
  const handled = async (durable: string, app?: string) => {
    const rows = await stage.database.query<{ event_id: string }>(
      'SELECT event_id FROM effects WHERE durable = $1 AND ($2::text IS NULL OR app = $2) ORDER BY event_id',
      [durable, app ?? null],
    );
    return rows.map((row) => row.event_id);
  };
  const handledSome = (durable: string, app: string) =>
    eventually(`'${app}' handles events for ${durable}`, async () => (await handled(durable, app)).length > 5);
  /** What is registered, without when it was last seen. */
  const registered = () =>
    stage.database.query(
      `SELECT d.name, d.formerly, d.state, t.pattern, t.matcher, t.since::text, t.ended_at, t.backfill_to
       FROM outbox.durables d LEFT JOIN outbox.durable_types t ON t.durable = d.id ORDER BY 1, 4`,
    );
  /** Those of a durable and a type that wait for somebody. */
  const waiting = async (durable: string, type: string) => {
    const rows = await stage.database.query<{ event_id: string }>(
      `SELECT x.event_id FROM outbox.deliveries x JOIN outbox.durables d ON d.id = x.durable JOIN outbox.events e ON e.id = x.event_id
       WHERE d.name = $1 AND e.type = $2 AND x.lease IS NULL ORDER BY 1`,
      [durable, type],
    );
    return rows.map((row) => row.event_id);
  };
  /** As if the half minute had passed for which a version leaves a type alone that it does not know. */
  const halfMinute = () => stage.database.query('UPDATE outbox.deliveries SET due_at = now() WHERE lease IS NULL');
  const allFannedOut = () =>
    eventually('the queue is empty', () => stage.database.value('SELECT NOT EXISTS (SELECT 1 FROM outbox.queue)'));

  itOfRows(
    'when a durable is added: it gets what is published from its registration on, and what comes while its pods are gone',
    async () => {
      const type = 'added.thing.done';
      const oldVersion: Version = [['a-ledger', type]];
      const newVersion: Version = [...oldVersion, ['a-audit', type]];
      const [publisher, old] = await Promise.all([api(type), pod('old', oldVersion)]);
      const events = trickle(publisher, type);
      await events.more(type);
      const before = events.of(type);
      const next = await pod('new', newVersion);
      // What was written before the registration may be answered after it: those under way now are not counted as late.
      await events.more(type);
      const then = events.of(type);
      await Promise.all([
        handledSome('a-ledger', 'old'),
        handledSome('a-ledger', 'new'),
        handledSome('a-audit', 'new'),
      ]);
      const rows = await registered();
      const another = await pod('old', oldVersion);
      await next.close();
      await events.more(type);
      expect(await registered()).toEqual(rows);
      const all = (await events.stop())[type] ?? [];
      await stage.drained('a-ledger');
      await allFannedOut();
      const late = all.filter((id) => !then.includes(id));
      expect(late).toEqual(expect.arrayContaining(await waiting('a-audit', type)));
      expect((await waiting('a-audit', type)).length).toBeGreaterThan(5);
      const back = await pod('new', newVersion);
      await stage.drained('a-audit');
      expect(await registered()).toEqual(rows);
      expect(await handled('a-ledger')).toEqual(all.toSorted());
      const audited = await handled('a-audit');
      expect(audited).toEqual([...new Set(audited)]);
      expect(audited).toEqual(expect.arrayContaining(late));
      expect(audited.filter((id) => before.includes(id))).toEqual([]);
      await Promise.all([publisher, old, another, back].map((app) => app.close()));
    },
  );

  itOfRows('when a durable gets one more type: an old pod leaves it to a new one', async () => {
    const [paid, voided] = ['type.thing.paid', 'type.thing.voided'];
    const [publisher, old] = await Promise.all([api(paid, voided), pod('old', [['t-ledger', paid]])]);
    const next = await pod('new', [['t-ledger', [paid, voided]]]);
    const events = trickle(publisher, paid, voided);
    await Promise.all([handledSome('t-ledger', 'old'), handledSome('t-ledger', 'new')]);
    const rows = await registered();
    const another = await pod('old', [['t-ledger', paid]]);
    await next.close();
    await events.more(voided);
    const ids = await events.stop();
    await eventually('what old pods know is handled', async () => (await waiting('t-ledger', paid)).length === 0);
    await allFannedOut();
    expect((await waiting('t-ledger', voided)).length).toBeGreaterThan(5);
    await Promise.all([old, another].map((app) => app.close()));
    await halfMinute();
    const back = await pod('new', [['t-ledger', [paid, voided]]]);
    await stage.drained('t-ledger');
    expect(await registered()).toEqual(rows);
    expect(await handled('t-ledger')).toEqual(Object.values(ids).flat().toSorted());
    const types = await stage.database.query(
      `SELECT DISTINCT e.type FROM effects f JOIN outbox.events e ON e.id = f.event_id WHERE f.durable = 't-ledger' AND f.app = 'old'`,
    );
    expect(types).toEqual([{ type: paid }]);
    // Nothing was charged to whoever waited.
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.attempts')).toBe(0);
    await Promise.all([publisher, back].map((app) => app.close()));
  });

  it('when a durable is renamed: both names are one durable, whoever boots last', async () => {
    const type = 'renamed.thing.done';
    const oldVersion: Version = [['r-accounting', type]];
    const newVersion: Version = [['r-ledger', type, { formerly: ['r-accounting'] }]];
    const [publisher, old] = await Promise.all([api(type), pod('old', oldVersion)]);
    const events = trickle(publisher, type);
    await handledSome('r-accounting', 'old');
    const next = await pod('new', newVersion);
    await handledSome('r-ledger', 'new');
    const rows = await registered();
    const another = await pod('older', oldVersion);
    await handledSome('r-accounting', 'older');
    expect(await registered()).toEqual(rows);
    await Promise.all([old, another].map((app) => app.close()));
    await events.more(type);
    const all = (await events.stop())[type] ?? [];
    await stage.drained('r-ledger');
    expect([...(await handled('r-accounting')), ...(await handled('r-ledger'))].toSorted()).toEqual(all.toSorted());
    await Promise.all([publisher, next].map((app) => app.close()));
  });

  it('when a type is renamed: both names are handled, once each, by whoever knows them', async () => {
    const [settled, closed] = ['was.thing.settled', 'is.thing.closed'] as const;
    const Closed = defineEvent(closed, undefined, { formerly: [settled] });
    const [oldApi, old] = await Promise.all([api(settled), pod('old', [['w-ledger', settled]])]);
    const before = trickle(oldApi, settled);
    await handledSome('w-ledger', 'old');
    // The new publisher is there before the new worker.
    const newApi = await stage.boot({ manifest: { emits: [Closed] }, outbox: { role: 'publisher' } });
    const after = trickle(newApi, closed);
    await after.more(closed);
    const next = await pod('new', [['w-ledger', Closed]]);
    const rows = await registered();
    const another = await pod('old', [['w-ledger', settled]]);
    await Promise.all([before.more(settled), after.more(closed)]);
    expect((await registered()).map(({ backfill_to: _, ...row }) => row)).toEqual(
      rows.map(({ backfill_to: _, ...row }) => row),
    );
    const ids = { ...(await before.stop()), ...(await after.stop()) };
    await Promise.all([old, another].map((app) => app.close()));
    await allFannedOut();
    await halfMinute();
    await stage.drained('w-ledger');
    expect(await handled('w-ledger')).toEqual(Object.values(ids).flat().toSorted());
    await Promise.all([oldApi, newApi, next].map((app) => app.close()));
  });

  itOfRows(
    'when a durable and a type are removed: what they still get waits, and is there after a rollback',
    async () => {
      const [paid, voided] = ['less.thing.paid', 'less.thing.voided'];
      const oldVersion: Version = [
        ['l-ledger', [paid, voided]],
        ['l-mail', paid],
      ];
      const newVersion: Version = [['l-ledger', paid]];
      const [publisher, old] = await Promise.all([api(paid, voided), pod('old', oldVersion)]);
      const events = trickle(publisher, paid, voided);
      await Promise.all([handledSome('l-ledger', 'old'), handledSome('l-mail', 'old')]);
      const rows = await registered();
      const next = await pod('new', newVersion);
      await handledSome('l-ledger', 'new');
      await old.close();
      await events.more(paid);
      const ids = await events.stop();
      await eventually('what the new pod knows is handled', async () => (await waiting('l-ledger', paid)).length === 0);
      await allFannedOut();
      expect((await waiting('l-mail', paid)).length).toBeGreaterThan(5);
      expect((await waiting('l-ledger', voided)).length).toBeGreaterThan(5);
      expect(await registered()).toEqual(rows);
      await next.close();
      await halfMinute();
      const back = await pod('back', oldVersion);
      await Promise.all([stage.drained('l-ledger'), stage.drained('l-mail')]);
      expect(await registered()).toEqual(rows);
      expect(await handled('l-mail')).toEqual(ids[paid]?.toSorted());
      expect(await handled('l-ledger')).toEqual(Object.values(ids).flat().toSorted());
      await Promise.all([publisher, back].map((app) => app.close()));
    },
  );
});
