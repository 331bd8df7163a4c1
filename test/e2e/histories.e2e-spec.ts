import fc from 'fast-check';
import type { OutgoingEvent, Published } from 'nestjs-outbox';
import type { EntityManager } from 'typeorm';
import { forAll } from '../support/for-all.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'test.history.written';
const tenants = [undefined, 'acme', 'globex'] as const;

/** What makes an event unique: one of a few keys, its payload (which is one of a few, too), or nothing. */
interface One {
  readonly by: 'key' | 'payload' | 'nothing';
  readonly n: number;
  readonly tenant: number;
}
type Step =
  | { readonly do: 'publish'; readonly one: One }
  | { readonly do: 'publishMany'; readonly many: readonly One[] }
  | { readonly do: 'expire'; readonly one: One }
  | { readonly do: 'savepoint'; readonly steps: readonly Step[]; readonly undone: boolean };
interface Transaction {
  readonly steps: readonly Step[];
  readonly undone: boolean;
}

const one: fc.Arbitrary<One> = fc.record({
  by: fc.constantFrom('key', 'key', 'payload', 'nothing'),
  n: fc.nat(2),
  tenant: fc.nat(tenants.length - 1),
});
const { step } = fc.letrec<{ step: Step }>((tie) => ({
  step: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.record({ do: fc.constant('publish' as const), one }),
    fc.record({ do: fc.constant('publishMany' as const), many: fc.array(one, { maxLength: 8 }) }),
    fc.record({ do: fc.constant('expire' as const), one }),
    fc.record({
      do: fc.constant('savepoint' as const),
      steps: fc.array(tie('step'), { maxLength: 5 }),
      undone: fc.boolean(),
    }),
  ),
}));
const transaction: fc.Arbitrary<Transaction> = fc.record({
  steps: fc.array(step, { minLength: 1, maxLength: 6 }),
  undone: fc.boolean(),
});

/** What the outbox should hold: the events that exist, and for every key the event that stands. */
class Model {
  private alive = new Set<string>();
  private keys = new Map<string, string>();
  private readonly ever = new Set<string>();

  get ids(): string[] {
    return [...this.alive].toSorted();
  }

  /** Compares one answer with what had to come, and takes it over. */
  answer(given: One, published: Published | undefined): void {
    const key = keyOf(given);
    const standing = key === undefined ? undefined : this.keys.get(key);
    if (standing !== undefined) {
      expect(published).toEqual({ id: standing, duplicate: true });
      return;
    }
    expect(published).toEqual({ id: expect.any(String), duplicate: false });
    const id = published?.id ?? '';
    expect(this.ever.has(id)).toBe(false);
    this.ever.add(id);
    this.alive.add(id);
    if (key !== undefined) this.keys.set(key, id);
  }

  /** Whether an event holds its key. */
  expire(given: One): string | undefined {
    const key = keyOf(given) ?? '';
    const id = this.keys.get(key);
    this.keys.delete(key);
    return id;
  }

  mark(): () => void {
    const [alive, keys] = [new Set(this.alive), new Map(this.keys)];
    return () => {
      this.alive = alive;
      this.keys = keys;
    };
  }
}

function keyOf({ by, n, tenant }: One): string | undefined {
  return by === 'nothing' ? undefined : `${by} ${n} ${tenant}`;
}

class Undo extends Error {}

async function undoable(work: () => Promise<unknown>): Promise<void> {
  await work().catch((error) => {
    if (!(error instanceof Undo)) throw error;
  });
}

describe('whatever is published, nested, undone and repeated: the outbox holds what was committed', () => {
  const stage = useStage();
  let app: TestApp;
  let runs = 0;

  beforeAll(async () => {
    app = await stage.boot({
      providers: [subscriber(event, 'ledger', (given, context) => effect(given, context))],
      manifest: { emits: [event] },
    });
  });

  /** `run` keeps the keys and payloads of one history apart from those of all others. */
  function outgoing(run: number, { by, n, tenant }: One): OutgoingEvent {
    const tenantId = tenants[tenant];
    return {
      event,
      payload: { run, ...(by === 'payload' ? { n } : {}) },
      ...(tenantId === undefined ? {} : { tenantId }),
      ...(by === 'key' ? { unique: n === 0 ? { key: `${run} ${n}`, for: '1h' as const } : `${run} ${n}` } : {}),
      ...(by === 'payload' ? { unique: true as const } : {}),
    };
  }

  async function play(run: number, model: Model, manager: EntityManager, steps: readonly Step[]): Promise<void> {
    for (const step of steps) {
      if (step.do === 'publish') {
        const { event: type, payload, tenantId, ...options } = outgoing(run, step.one);
        const published = tenantId
          ? app.publisher.publishFor(tenantId, type, payload, options)
          : app.publisher.publish(type, payload, options);
        model.answer(step.one, await published);
      } else if (step.do === 'publishMany') {
        const published = await app.publisher.publishMany(step.many.map((given) => outgoing(run, given)));
        expect(published).toHaveLength(step.many.length);
        for (const [i, given] of step.many.entries()) model.answer(given, published[i]);
      } else if (step.do === 'expire') {
        const id = model.expire(step.one);
        const sql = 'UPDATE outbox.unique_keys SET expires_at = clock_timestamp() WHERE event_id = $1';
        if (id) await manager.query(sql, [id]);
      } else {
        const undo = model.mark();
        await undoable(() =>
          manager.transaction(async (nested) => {
            await play(run, model, nested, step.steps);
            if (step.undone) throw new Undo();
          }),
        );
        if (step.undone) undo();
      }
    }
  }

  const storedOf = async (run: number) => {
    const sql = `SELECT id FROM outbox.events WHERE (payload->>'run')::int = $1 ORDER BY id::text`;
    return (await stage.database.query<{ id: string }>(sql, [run])).map(({ id }) => id);
  };
  const everyEventIsHandledOnce = async () => {
    await stage.settled();
    const sql = `SELECT (SELECT count(*)::int FROM outbox.events) AS events, count(*)::int AS handled, count(DISTINCT event_id)::int AS once,
      (SELECT count(*)::int FROM outbox.events e WHERE NOT EXISTS (SELECT 1 FROM effects f WHERE f.event_id = e.id)) AS lost FROM effects`;
    const [row] = await stage.database.query<{ events: number; handled: number; once: number; lost: number }>(sql);
    expect(row?.events).toBeGreaterThan(100);
    expect(row).toEqual({ events: row?.events, handled: row?.events, once: row?.events, lost: 0 });
  };

  it('one after the other: exactly what a model says, ids and duplicates included', async () => {
    await forAll(
      fc.array(transaction, { minLength: 1, maxLength: 6 }),
      async (history) => {
        const run = ++runs;
        const model = new Model();
        for (const { steps, undone } of history) {
          const undo = model.mark();
          await undoable(() =>
            app.dataSource.transaction(async (manager) => {
              await play(run, model, manager, steps);
              if (undone) throw new Undo();
            }),
          );
          if (undone) undo();
        }
        expect(await storedOf(run)).toEqual(model.ids);
      },
      { runs: 300, withinMs: 25_000 },
    );
    await everyEventIsHandledOnce();
  });

  it('several at once: no error, one event for a key, and every answer of a committed caller names it', async () => {
    const caller = fc.record({ many: fc.array(one, { minLength: 1, maxLength: 10 }), undone: fc.boolean() });
    await forAll(
      fc.array(caller, { minLength: 2, maxLength: 6 }),
      async (callers) => {
        const run = ++runs;
        const answers = await Promise.all(
          callers.map(async ({ many, undone }) => {
            let published: Published[] = [];
            await undoable(() =>
              app.dataSource.transaction(async () => {
                published = await app.publisher.publishMany(many.map((given) => outgoing(run, given)));
                if (undone) throw new Undo();
              }),
            );
            return undone ? [] : many.map((given, i) => ({ key: keyOf(given), ...published[i] }));
          }),
        );
        const committed = answers.flat();
        const fresh = committed.filter(({ duplicate }) => !duplicate);
        expect(await storedOf(run)).toEqual(fresh.map(({ id }) => id).toSorted());
        for (const { key, id } of committed) {
          if (key === undefined) continue;
          expect(fresh.filter((published) => published.key === key).map((published) => published.id)).toEqual([id]);
        }
      },
      { runs: 200, withinMs: 15_000 },
    );
    await everyEventIsHandledOnce();
  });
});
