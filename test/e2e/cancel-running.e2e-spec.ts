import { once } from 'node:events';
import { type DeliveryContext, type OutboxEvent, OutboxInspector, SnoozeError } from 'nestjs-outbox';
import { eventually, gate } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'test.work.asked';
const pair = 'test.pair.asked';
const slow = 'test.slow.asked';

interface Task {
  /** What the handler does when its signal aborts. */
  readonly told?:
    | 'cancels itself'
    | 'throws its reason'
    | 'throws'
    | 'snoozes'
    | 'returns'
    | 'leaves a savepoint'
    | 'conflicts';
  /** It waits for the test before it looks at its signal. */
  readonly n?: number;
}

/** Over memory() there is no other process. */
const itOfProcesses = (globalThis as { outboxTransport?: string }).outboxTransport === 'memory' ? it.skip : it;

/** Resolves when the signal has aborted. */
async function aborted({ signal }: DeliveryContext): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}

describe('an operator cancels what runs', () => {
  const stage = useStage();
  let app: TestApp;
  let inspector: OutboxInspector;
  const started = new Map<string, number>();
  const reasons = new Map<string, unknown>();
  const held = new Map<number, ReturnType<typeof gate>>();

  async function handle(given: OutboxEvent<Task>, context: DeliveryContext): Promise<void> {
    const run = `${given.id} ${context.durable}`;
    started.set(run, (started.get(run) ?? 0) + 1);
    await effect(given, context);
    const { n, told } = given.payload;
    if (told === 'cancels itself') {
      reasons.set(run, await app.publisher.cancel({ id: given.id }));
      return;
    }
    if (n !== undefined) await held.get(n)?.passed;
    else await aborted(context);
    reasons.set(run, context.signal.reason);
    if (told === 'throws its reason') throw context.signal.reason;
    if (told === 'throws') throw new Error('gave up');
    if (told === 'snoozes') throw new SnoozeError('1h');
    if (told === 'conflicts') throw Object.assign(new Error('query failed'), { driverError: { code: '40001' } });
    if (told === 'leaves a savepoint') {
      await context.manager.queryRunner?.startTransaction();
      throw new Error('gave up with a savepoint open');
    }
  }

  const endless = (id: string) => {
    started.set(`${id} slow`, 1);
    return new Promise(() => {});
  };

  beforeAll(async () => {
    app = await stage.boot({
      manifest: { emits: [event, pair, slow] },
      outbox: { handlers: { concurrency: 4 } },
      providers: [
        subscriber(event, 'ledger', handle),
        subscriber(slow, 'slow', ({ id }) => endless(id), { timeout: '1s' }),
        subscriber(pair, 'one', handle),
        subscriber(pair, 'other', handle),
      ],
    });
    inspector = app.app.get(OutboxInspector);
  });

  const runs = (id: string, durable = 'ledger') =>
    eventually(`'${durable}' runs ${id}`, () => started.get(`${id} ${durable}`));
  const publish = async (task: Task, unique?: string) => {
    const { id } = await app.publisher.publishNow(event, task, unique === undefined ? {} : { unique });
    await runs(id);
    return id;
  };
  const marks = (id: string) =>
    stage.database.query(
      `SELECT d.name AS durable, h.verdict, h.attempts::int FROM outbox.handled h LEFT JOIN outbox.durables d ON d.id = h.durable
       WHERE h.event_id = $1 ORDER BY h.durable`,
      [id],
    );
  const cancelled = [
    { durable: null, verdict: 'c', attempts: 0 },
    { durable: 'ledger', verdict: 'c', attempts: 0 },
  ];
  const ends = (id: string, rows: unknown[]) =>
    eventually(`${id} ends`, async () => {
      const seen = await marks(id);
      if (JSON.stringify(seen) !== JSON.stringify(rows)) throw new Error(JSON.stringify(seen));
      return true;
    });
  const traces = (id: string) =>
    stage.database.query(
      `SELECT (SELECT count(*)::int FROM effects WHERE event_id = $1) AS effects, (SELECT count(*)::int FROM outbox.deliveries WHERE event_id = $1) AS deliveries,
        (SELECT count(*)::int FROM outbox.attempts WHERE event_id = $1) AS attempts, (SELECT count(*)::int FROM outbox.dead_letters WHERE event_id = $1) AS letters`,
      [id],
    );
  const none = [{ effects: 0, deliveries: 0, attempts: 0, letters: 0 }];

  it.each(['throws its reason', 'throws', 'snoozes', 'leaves a savepoint', 'conflicts'] as const)(
    'its signal aborts; a handler that then %s ends as cancelled, charged with nothing and not run again',
    async (told) => {
      const id = await publish({ told });
      expect(await inspector.cancel({ id }, { abort: true })).toEqual({ cancelled: 0, tooLate: 1 });
      await ends(id, cancelled);
      expect(reasons.get(`${id} ledger`)).toMatchObject({ code: 'OUTBOX_CANCELLED', eventId: id, durable: 'ledger' });
      expect(await traces(id)).toEqual(none);
      expect(started.get(`${id} ledger`)).toBe(1);
    },
  );

  it('one that returns all the same has done its work', async () => {
    const id = await publish({ told: 'returns' });
    await inspector.cancel({ id }, { abort: true });
    await ends(id, [{ durable: 'ledger', verdict: 'd', attempts: 1 }]);
    expect(await traces(id)).toEqual([{ ...none[0], effects: 1 }]);
  });

  it('one that is cut off by its timeout after that ends as cancelled, too', async () => {
    const { id } = await app.publisher.publishNow(slow, {});
    await runs(id, 'slow');
    await inspector.cancel({ id }, { abort: true });
    await ends(id, [cancelled[0], { durable: 'slow', verdict: 'c', attempts: 0 }]);
    expect(await traces(id)).toEqual(none);
  });

  it('one that cancels its own event is told too late, and is handled', async () => {
    const { id } = await app.publisher.publishNow(event, { told: 'cancels itself' });
    await ends(id, [{ durable: 'ledger', verdict: 'd', attempts: 1 }]);
    expect(reasons.get(`${id} ledger`)).toEqual({ cancelled: 0, tooLate: 1 });
  });

  it('without abort nobody is told', async () => {
    const n = 1;
    const door = gate();
    held.set(n, door);
    const id = await publish({ n });
    expect(await inspector.cancel({ id })).toEqual({ cancelled: 0, tooLate: 1 });
    door.open();
    await ends(id, [{ durable: 'ledger', verdict: 'd', attempts: 1 }]);
    expect(reasons.get(`${id} ledger`)).toBeUndefined();
  });

  it('one that looks at its signal for the first time afterwards finds it aborted', async () => {
    const n = 2;
    const door = gate();
    held.set(n, door);
    const id = await publish({ n, told: 'throws its reason' });
    await inspector.cancel({ id }, { abort: true });
    // Another process's word has come by then as well.
    door.open();
    await ends(id, cancelled);
  });

  it('by its unique key, which is free when it has ended', async () => {
    const id = await publish({ told: 'throws' }, 'one of a kind');
    const { publisher } = app;
    const again = () => publisher.publishNow(event, { told: 'throws' }, { unique: 'one of a kind', delay: '20h' });
    expect((await again()).id).toBe(id);
    await inspector.cancel({ event, unique: 'one of a kind' }, { abort: true });
    await ends(id, cancelled);
    expect((await again()).duplicate).toBe(false);
  });

  it('two durables that end at the same moment: the key is free, and nobody gets it later', async () => {
    const { id } = await app.publisher.publishNow(pair, { told: 'throws' }, { unique: 'two' });
    await Promise.all(['one', 'other'].map((durable) => runs(id, durable)));
    expect(await inspector.cancel({ event: pair, unique: 'two' }, { abort: true })).toEqual({
      cancelled: 0,
      tooLate: 2,
    });
    await ends(id, [
      { durable: null, verdict: 'c', attempts: 0 },
      { durable: 'one', verdict: 'c', attempts: 0 },
      { durable: 'other', verdict: 'c', attempts: 0 },
    ]);
    expect((await app.publisher.publishNow(pair, {}, { unique: 'two', delay: '20h' })).duplicate).toBe(false);
  });

  it('a cancelled run of a later attempt keeps what it had been charged with before', async () => {
    const n = 3;
    const door = gate();
    held.set(n, door);
    const { id } = await app.publisher.publishNow(event, { n, told: 'throws' }, { delay: '20h' });
    await stage.database.query(
      `WITH q AS (DELETE FROM outbox.queue WHERE event_id = $1 RETURNING event_id)
       INSERT INTO outbox.deliveries (event_id, durable, attempt) SELECT q.event_id, d.id, 2 FROM q, outbox.durables d WHERE d.name = 'ledger'`,
      [id],
    );
    await runs(id);
    await inspector.cancel({ id }, { abort: true });
    door.open();
    await ends(id, [cancelled[0], { durable: 'ledger', verdict: 'c', attempts: 2 }]);
  });
});

describe('a handler in another process', () => {
  const stage = useStage();

  itOfProcesses('is told by NOTIFY, whoever asks, also an app that handles nothing', async () => {
    const started = gate<string>();
    const worker = await stage.boot({
      manifest: { emits: [event] },
      providers: [
        subscriber(event, 'ledger', async (given, context) => {
          started.open(given.id);
          await aborted(context);
          throw context.signal.reason;
        }),
      ],
    });
    const desk = await stage.boot({ outbox: { role: 'publisher' } });
    await worker.publisher.publishNow(event, {});
    const id = await started.passed;
    await desk.app.get(OutboxInspector).cancel({ id }, { abort: true });
    await eventually('it is cancelled', () =>
      stage.database.value<boolean>(`SELECT count(*) = 2 FROM outbox.handled WHERE event_id = $1 AND verdict = 'c'`, [
        id,
      ]),
    );
  });
});
