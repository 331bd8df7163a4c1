import { setTimeout as pause } from 'node:timers/promises';
import type { ConsumerInfo } from 'nats';
import { eventually } from '../../../../../test/support/eventually.js';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { effect, subscriber, useStage } from '../../../../../test/support/stage.js';
import type { TestApp } from '../../../../../test/support/test-app.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import { useBroker } from './broker.fixture.js';
import { jetstream } from './jetstream.transport.js';

const manifest = { emits: ['roll.thing.done', 'roll.thing.undone', 'roll.other.done', 'noise.thing.heard'] };

/** One database with a stream of its own, and what the tests look at. */
function useSite() {
  const broker = useBroker();
  const stage = useStage('CREATE INDEX ON effects (event_id, durable)');
  const stream = broker.name();

  /** A pod whose durables have these types. The reconciler looks once at its start, and mends nothing during the test. */
  const pod = (name: string, durables: Record<string, readonly string[]>) =>
    stage.boot({
      manifest,
      providers: Object.entries(durables).map(([durable, types]) =>
        subscriber(types as never, durable, (event, context) => effect(event, context, event.type, name)),
      ),
      outbox: {
        transport: jetstream({ servers: natsUrl(), stream, prefix: stream, ackWait: '2s' }),
        schema: { onStart: 'migrate' },
        relay: { poll: '50ms', reconcile: '20d' },
      },
    });

  /** Publishes one event of each type every few milliseconds until it is told to stop. */
  function trickle({ publisher }: TestApp, ...types: string[]) {
    const ids: string[] = [];
    let open = true;
    const running = (async () => {
      for (; open; await pause(5)) for (const type of types) ids.push((await publisher.publishNow(type, {})).id);
    })();
    return {
      more: (n: number) => {
        const from = ids.length;
        return eventually(`${n} more events`, () => ids.length >= from + n, 40_000);
      },
      async stop() {
        open = false;
        await running;
        return ids.toSorted();
      },
    };
  }

  /** Every consumer that was ever seen standing on the stream, with its settings, until it is stopped. */
  function watch() {
    const seen = new Map<string, Set<string>>();
    let open = true;
    const note = ({ name, created, config }: ConsumerInfo) => {
      seen.set(name, (seen.get(name) ?? new Set()).add(JSON.stringify([created, config])));
    };
    const running = (async () => {
      for (; open; await pause(20)) for await (const info of broker.manager.consumers.list(stream)) note(info);
    })();
    return async () => {
      open = false;
      await running;
      return seen;
    };
  }

  const handled = async (durable: string, app?: string) => {
    const rows = await stage.database.query<{ event_id: string }>(
      'SELECT event_id FROM effects WHERE durable = $1 AND ($2::text IS NULL OR app = $2) ORDER BY event_id',
      [durable, app ?? null],
    );
    return rows.map((row) => row.event_id);
  };
  /** As if the half minute had passed for which a version leaves a type alone that it does not know. */
  const halfMinute = () => stage.database.query('UPDATE outbox.deliveries SET due_at = now() WHERE lease IS NULL');
  const allHandled = (durable: string, ids: readonly string[]) =>
    eventually(
      `all of ${ids.length} are handled for ${durable}`,
      async () => {
        await halfMinute();
        await pause(100);
        return (await handled(durable)).length >= ids.length;
      },
      30_000,
    );

  return { stage, pod, trickle, watch, handled, allHandled };
}

describeWithNats('a rolling deploy over JetStream', () => {
  const { stage, pod, trickle, watch, handled, allHandled } = useSite();

  it('adds a type to a durable: none of either type is lost or handled twice, and its consumer is made twice in all', async () => {
    const durable = 'roll-ledger';
    const old = await pod('old', { [durable]: ['roll.thing.done'] });
    const sight = watch();
    const before = trickle(old, 'roll.thing.done', 'noise.thing.heard');
    await before.more(40);
    const next = await pod('new', { [durable]: ['roll.thing.done', 'roll.thing.undone'] });
    const both = trickle(next, 'roll.thing.undone');
    // Longer than two looks of the old pod's watchdog.
    await Promise.all([both.more(100), pause(7_000)]);
    const [first, second] = [await before.stop(), await both.stop()];
    const meant = await stage.database.query<{ id: string }>(
      `SELECT id FROM outbox.events WHERE id = ANY ($1) AND type <> 'noise.thing.heard' ORDER BY id`,
      [[...first, ...second]],
    );
    const ids = meant.map(({ id }) => id);
    await allHandled(durable, ids);
    expect(await handled(durable)).toEqual(ids);
    expect((await handled(durable, 'old')).length).toBeGreaterThan(15);
    expect((await handled(durable, 'new')).length).toBeGreaterThan(15);
    const seen = await sight();
    expect([...seen.values()].map((settings) => settings.size)).toEqual([1, 1]);
    expect([...seen.keys()][0]).toBe(durable);
    for (const app of [old, next]) expect(app.log.matching(/^(warn|error).*(lost|gone|cannot)/)).toEqual([]);
  });
});

describeWithNats('a rolling deploy over JetStream that is taken back', () => {
  const { stage, pod, trickle, handled, allHandled } = useSite();

  it('loses nothing of what the old pods do not know: it waits in the database', async () => {
    const durable = 'roll-back';
    const old = await pod('old', { [durable]: ['roll.thing.done'] });
    const next = await pod('new', { [durable]: ['roll.thing.done', 'roll.other.done'] });
    await next.close();
    const load = trickle(old, 'roll.thing.done', 'roll.other.done');
    await load.more(40);
    const ids = await load.stop();
    await eventually('the old pod has what it knows', async () => (await handled(durable)).length === ids.length / 2);
    await eventually('and the rest waits', async () => {
      const sql = `SELECT count(*)::int FROM outbox.deliveries x JOIN outbox.durables d ON d.id = x.durable WHERE d.name = $1`;
      return (await stage.database.value<number>(sql, [durable])) === ids.length / 2;
    });
    await pod('again', { [durable]: ['roll.thing.done', 'roll.other.done'] });
    await allHandled(durable, ids);
    expect(await handled(durable)).toEqual(ids);
  });
});
