import fc from 'fast-check';
import {
  DeadLetters,
  type DeliveryFilter,
  type DeliveryInfo,
  type DeliveryState,
  OutboxInspector,
  UnrecoverableError,
} from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { forAll } from '../support/for-all.js';
import { itOfRows } from '../support/of-rows.js';
import { subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const sent = 'test.state.sent';
const held = 'test.state.held';
const lonely = 'test.nobody.cares';
const states: readonly DeliveryState[] = ['pending', 'running', 'retryable', 'completed', 'discarded', 'cancelled'];

/** What becomes of an event: by its handlers, or before them. */
type Fate = 'done' | 'fail' | 'die' | 'die once';
interface One {
  readonly fate: Fate;
  readonly type: typeof sent | typeof held | typeof lonely;
  readonly when: 'now' | 'later' | 'far';
  readonly tenant: 'none' | 'free' | 'closing';
}
interface Round {
  readonly publish: readonly One[];
  /** The tenant `closing` is paused behind the publishes. */
  readonly close: boolean;
  /** Which events, counted from the first of the history. */
  readonly cancel: readonly number[];
  readonly retry: readonly number[];
}

const one: fc.Arbitrary<One> = fc.record({
  fate: fc.constantFrom('done', 'fail', 'die', 'die once'),
  type: fc.constantFrom(sent, sent, sent, held, lonely),
  when: fc.constantFrom('now', 'now', 'now', 'later', 'far'),
  tenant: fc.constantFrom('none', 'free', 'closing'),
});
const round: fc.Arbitrary<Round> = fc.record({
  publish: fc.array(one, { minLength: 1, maxLength: 6 }),
  close: fc.boolean(),
  cancel: fc.array(fc.nat(12), { maxLength: 3 }),
  retry: fc.array(fc.nat(12), { maxLength: 3 }),
});

/** Durables: `ledger` gets all of test.state, `mail` what is sent, `away` the same and no process has it. */
const meantFor = (type: One['type']): string[] =>
  type === lonely ? [] : type === sent ? ['ledger', 'mail', 'away'] : ['ledger'];

/** What should be so: the state of each (event, durable). */
class Model {
  readonly events: { readonly id: string; readonly one: One }[] = [];
  readonly states = new Map<string, DeliveryState>();

  published(id: string, given: One, closed: boolean): void {
    this.events.push({ id, one: given });
    const stays = given.when !== 'now' || given.type === held || (closed && given.tenant === 'closing');
    for (const durable of meantFor(given.type))
      this.states.set(`${id} ${durable}`, stays || durable === 'away' ? 'pending' : this.ended(given.fate));
  }

  cancelled(id: string): void {
    const own = [...this.states.keys()].filter((key) => key.startsWith(id));
    if (own.length === 0) this.states.set(`${id} null`, 'cancelled');
    for (const key of own)
      if (['pending', 'retryable'].includes(this.states.get(key) ?? '')) this.states.set(key, 'cancelled');
  }

  retried(id: string, durable: string, fate: Fate, closed: boolean): void {
    this.states.set(`${id} ${durable}`, closed ? 'pending' : fate === 'die once' ? 'completed' : 'discarded');
  }

  private ended(fate: Fate): DeliveryState {
    return fate === 'done' ? 'completed' : fate === 'fail' ? 'retryable' : 'discarded';
  }
}

interface ViewRow {
  readonly event_id: string;
  readonly durable: string | null;
  readonly state: DeliveryState;
}
const keyOf = (row: { readonly event_id: string; readonly durable: string | null; readonly state: string }): string =>
  `${row.event_id} ${row.durable} ${row.state}`;

describe('whatever happens to events: the API and the view tell the same states, each delivery in exactly one', () => {
  const stage = useStage();
  const dead = new Set<string>();
  let app: TestApp;
  let inspector: OutboxInspector;
  let runs = 0;

  beforeAll(async () => {
    const handle = (
      event: { readonly id: string; readonly payload: { readonly fate: Fate } },
      { durable }: { readonly durable: string },
    ): void => {
      const { fate } = event.payload;
      const key = `${event.id} ${durable}`;
      if (fate === 'fail') throw new Error('asked to fail');
      if (fate === 'die' || (fate === 'die once' && !dead.has(key))) {
        dead.add(key);
        throw new UnrecoverableError('asked to die');
      }
    };
    app = await stage.boot({
      providers: [
        subscriber('test.state.*', 'ledger', handle, { backoff: ['1h'] }),
        subscriber(sent, 'mail', handle, { backoff: ['1h'] }),
      ],
      manifest: { emits: [sent, held, lonely] },
    });
    inspector = app.app.get(OutboxInspector);
    await stage.database.query(
      `WITH d AS (INSERT INTO outbox.durables (name) VALUES ('away') RETURNING id)
       INSERT INTO outbox.durable_types (durable, pattern, matcher, since) SELECT id, $1, $1, '-infinity' FROM d`,
      [sent],
    );
    await pause('type', held);
  });

  /** As the inspector writes it, and the claim reads it. */
  async function pause(kind: 'type' | 'tenant', name: string): Promise<void> {
    await stage.database.query('INSERT INTO outbox.pauses (kind, name, matcher) VALUES ($1, $2, $2)', [kind, name]);
  }

  /** Nothing moves any more: `away` is handled by nobody, and what is parked stays. */
  const atRest = () =>
    eventually('nothing is on its way', () =>
      stage.database.value<boolean>(`SELECT NOT EXISTS (SELECT 1 FROM outbox.queue WHERE due_at <= clock_timestamp()) AND NOT EXISTS
        (SELECT 1 FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable WHERE n.name <> 'away' AND (d.lease > 0 OR d.lease IS NULL AND d.due_at <= clock_timestamp() + interval '10 seconds'))`),
    );

  async function play(run: number, model: Model, rounds: readonly Round[]): Promise<void> {
    let closed = false;
    const tenantOf = ({ tenant }: One) => (tenant === 'none' ? null : `${tenant} ${run}`);
    for (const { publish, close, cancel, retry } of rounds) {
      const published = await app.dataSource.transaction(() =>
        app.publisher.publishMany(
          publish.map((given) => ({
            event: given.type,
            payload: { fate: given.fate },
            subject: `run ${run}`,
            ...(given.tenant === 'none' ? {} : { tenantId: tenantOf(given) as string }),
            ...(given.when === 'now' ? {} : { delay: given.when === 'later' ? ('2h' as const) : ('3d' as const) }),
          })),
        ),
      );
      for (const [i, given] of publish.entries()) model.published(published[i]?.id ?? '', given, closed);
      await atRest();
      if (close && !closed) {
        await pause('tenant', `closing ${run}`);
        closed = true;
      }
      for (const n of retry) {
        const found = model.events[n];
        if (!found || model.states.get(`${found.id} ledger`) !== 'discarded') continue;
        expect(await app.app.get(DeadLetters).retry(found.id, 'ledger')).toBe(true);
        model.retried(found.id, 'ledger', found.one.fate, closed && found.one.tenant === 'closing');
        await atRest();
      }
      for (const n of cancel) {
        const found = model.events[n];
        if (!found) continue;
        await stage.database.query('SELECT outbox.cancel($1)', [found.id]);
        model.cancelled(found.id);
      }
    }
  }

  async function listed(filter: DeliveryFilter, limit: number): Promise<DeliveryInfo[]> {
    const all: DeliveryInfo[] = [];
    let cursor: string | undefined;
    do {
      const page = await inspector.list(filter, { limit, ...(cursor === undefined ? {} : { cursor }) });
      expect(page.deliveries.length).toBeLessThanOrEqual(limit);
      all.push(...page.deliveries);
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
    expect(all.map(({ eventId }) => eventId)).toEqual(
      all
        .map(({ eventId }) => eventId)
        .toSorted()
        .toReversed(),
    );
    return all;
  }

  const toldBy = (deliveries: readonly DeliveryInfo[]): string[] =>
    deliveries.map(({ eventId, durable, state }) => `${eventId} ${durable} ${state}`).toSorted();

  itOfRows('one history after the other', async () => {
    const limits = fc.record({ limit: fc.integer({ min: 1, max: 9 }), filtered: fc.nat(5) });
    await forAll(
      fc.tuple(fc.array(round, { minLength: 1, maxLength: 4 }), limits),
      async ([rounds, { limit, filtered }]) => {
        const run = ++runs;
        const model = new Model();
        await play(run, model, rounds);
        const view = await stage.database.query<ViewRow & { tenant_id: string | null; type: string }>(
          'SELECT event_id, durable, state, tenant_id, type FROM outbox.deliveries_state WHERE subject = $1',
          [`run ${run}`],
        );
        const rows = view.map(keyOf).toSorted();
        expect(rows).toEqual([...model.states].map(([key, state]) => `${key} ${state}`).toSorted());
        // By subject, by time (which reads everything there is, newest first), and one by one.
        expect(toldBy(await listed({ state: states, subject: `run ${run}` }, limit))).toEqual(rows);
        for (const state of states) {
          const of = rows.filter((row) => row.endsWith(` ${state}`));
          expect(toldBy(await listed({ state, tenantId: `closing ${run}` }, limit))).toEqual(
            view
              .filter((row) => row.state === state && row.tenant_id === `closing ${run}`)
              .map(keyOf)
              .toSorted(),
          );
          expect(toldBy(await listed({ state, subject: `run ${run}` }, limit))).toEqual(of);
        }
        for (const { id } of model.events) {
          const details = await inspector.get(id);
          expect(toldBy(details?.deliveries ?? [])).toEqual(rows.filter((row) => row.startsWith(id)));
        }
        const filters: readonly DeliveryFilter[] = [
          { durable: 'ledger' },
          { durable: 'away' },
          { type: 'test.*.held' },
          { error: 'ASKED to d' },
          { eventId: model.events[0]?.id ?? '' },
          {},
        ];
        const filter = filters[filtered] ?? {};
        const wanted = (await inspector.list({ ...filter, state: states }, { limit: 1_000 })).deliveries;
        const paged = await listed({ ...filter, state: states }, 10 * limit);
        expect(paged.slice(0, 1_000)).toEqual(wanted);
      },
      { runs: 100, withinMs: 40_000 },
    );
    await everyStateIsTheSame();
  });

  /** All histories together, state by state, in pages. */
  async function everyStateIsTheSame(): Promise<void> {
    await atRest();
    const view = await stage.database.query<ViewRow>('SELECT event_id, durable, state FROM outbox.deliveries_state');
    expect(new Set(view.map(({ event_id, durable }) => `${event_id} ${durable}`)).size).toBe(view.length);
    for (const state of states) {
      const rows = view.filter((row) => row.state === state).map(keyOf);
      expect(toldBy(await listed({ state }, 37))).toEqual(rows.toSorted());
      if (state !== 'running') expect(rows.length).toBeGreaterThan(5);
    }
    expect(toldBy(await listed({}, 1_000))).toEqual(
      view
        .filter(({ state }) => state !== 'completed')
        .map(keyOf)
        .toSorted(),
    );
  }
});
