import { setTimeout as pause } from 'node:timers/promises';
import { type DeliveryContext, type OutboxEvent, OutboxInspector, type PublishOptions } from 'nestjs-outbox';
import { Client } from 'pg';
import { eventually, gate } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'test.work.asked';
const single = 'test.single.asked';
const pair = 'test.pair.asked';
const last = 'test.last.asked';
const nobody = 'test.nobody.asked';
const late = 'test.late.asked';
const open = 'test.open.asked';

interface Task {
  readonly n: number;
  readonly does?: 'fail';
}

describe('what is cancelled before a handler has claimed it does not run', () => {
  const stage = useStage('CREATE TABLE notes (note text)');
  let app: TestApp;
  let numbers = 0;
  /** Handlers of these wait. */
  const held = new Map<number, ReturnType<typeof gate>>();
  const started = new Set<number>();

  async function handle(given: OutboxEvent<Task>, context: DeliveryContext): Promise<void> {
    const { n, does } = given.payload;
    started.add(n);
    await held.get(n)?.passed;
    if (does === 'fail') throw new Error('asked to fail');
    await effect(given, context);
  }

  beforeAll(async () => {
    const failing = async (given: OutboxEvent<Task>, context: DeliveryContext) => {
      if (given.payload.does) throw new Error('asked to fail');
      await effect(given, context);
    };
    app = await stage.boot({
      manifest: { emits: [event, single, pair, last, nobody, late, open] },
      outbox: { handlers: { concurrency: 4 } },
      providers: [
        subscriber(event, 'ledger', handle, { backoff: ['1h'] }),
        subscriber(single, 'single', handle, { concurrency: 1 }),
        subscriber(pair, 'does', effect),
        subscriber(pair, 'fails', failing, { backoff: ['1h'] }),
        subscriber(last, 'last', failing, { maxAttempts: 1 }),
      ],
    });
  });

  const publish = (type = event, options: PublishOptions & { tenantId?: string } = {}, task: Partial<Task> = {}) => {
    const n = task.n ?? ++numbers;
    return app.publisher.publishNow(type, { ...task, n }, options).then(({ id }) => ({ id, n }));
  };
  const cancel = (id: string) => app.dataSource.transaction(() => app.publisher.cancel({ id }));
  const effects = (id: string) =>
    stage.database.value<number>('SELECT count(*)::int FROM effects WHERE event_id = $1', [id]);
  const verdicts = async (id: string) => {
    const rows = await stage.database.query<{ durable: string | null; verdict: string }>(
      `SELECT d.name AS durable, h.verdict FROM outbox.handled h LEFT JOIN outbox.durables d ON d.id = h.durable WHERE h.event_id = $1 ORDER BY h.durable`,
      [id],
    );
    return rows.map(({ durable, verdict }) => `${durable ?? 'all'} ${verdict}`);
  };
  const left = (id: string) =>
    stage.database.value<number>(
      `SELECT ((SELECT count(*) FROM outbox.queue WHERE event_id = $1) + (SELECT count(*) FROM outbox.deliveries WHERE event_id = $1)
        + (SELECT count(*) FROM outbox.scheduled WHERE id = $1))::int`,
      [id],
    );
  const running = async (type = event) => {
    const n = ++numbers;
    const door = gate();
    held.set(n, door);
    const { id } = await publish(type, {}, { n });
    await eventually('its handler runs', () => started.has(n));
    return { id, open: () => door.open() };
  };
  const retrying = async (type = event) => {
    const { id } = await publish(type, {}, { does: 'fail' });
    await eventually('it waits for its next attempt', () =>
      stage.database.value<boolean>('SELECT count(*) = 1 FROM outbox.deliveries WHERE event_id = $1 AND attempt = 1', [
        id,
      ]),
    );
    return id;
  };
  const handled = async (type = event) => {
    const { id } = await publish(type);
    await eventually('it is handled', async () => (await effects(id)) === 1);
    return id;
  };
  const nothingCame = async (id: string) => {
    // What was published later has come through.
    await handled();
    await stage.settled();
    expect(await effects(id)).toBe(0);
    expect(await left(id)).toBe(0);
  };
  const other = async <T>(work: (client: Client) => Promise<T>): Promise<T> => {
    const client = new Client({ connectionString: stage.database.url });
    await client.connect();
    try {
      return await work(client);
    } finally {
      await client.end();
    }
  };

  it('published in the same transaction', async () => {
    const id = await app.dataSource.transaction(async () => {
      const { id } = await app.publisher.publish(event, { n: 0 });
      expect(await app.publisher.cancel({ id })).toEqual({ cancelled: 1, tooLate: 0 });
      return id;
    });
    expect(await verdicts(id)).toEqual(['all c', 'ledger c']);
    await nothingCame(id);
  });

  it.each([
    ['later today', '20h'],
    ['later than tomorrow', '30d'],
  ] as const)('due %s', async (_, delay) => {
    const { id } = await publish(event, { delay });
    expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 0 });
    expect(await verdicts(id)).toEqual(['all c', 'ledger c']);
    expect(await left(id)).toBe(0);
  });

  it('forwarded, and its turn has not come: wherever it is, with a broker, in a row, in the memory of a worker', async () => {
    const first = await running(single);
    const second = await publish(single);
    await eventually('it has left the queue', () =>
      stage.database.value<boolean>('SELECT count(*) = 0 FROM outbox.queue WHERE event_id = $1', [second.id]),
    );
    expect(await cancel(second.id)).toEqual({ cancelled: 1, tooLate: 0 });
    first.open();
    await handled(single);
    await nothingCame(second.id);
    expect(await effects(first.id)).toBe(1);
  });

  it('failed, and waiting for its next attempt', async () => {
    const id = await retrying();
    expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 0 });
    expect(await verdicts(id)).toEqual(['all c', 'ledger c']);
    await nothingCame(id);
  });

  it('of a type that nobody handles: counts as one', async () => {
    const { id } = await publish(nobody);
    expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 0 });
    expect(await cancel(id)).toEqual({ cancelled: 0, tooLate: 0 });
    expect(await verdicts(id)).toEqual(['all c']);
  });

  it('unless that is rolled back: then it runs', async () => {
    const { id } = await publish(event, { delay: '1s' });
    const rolledBack = app.dataSource.transaction(async () => {
      expect(await app.publisher.cancel({ id })).toEqual({ cancelled: 1, tooLate: 0 });
      throw new Error('rolled back');
    });
    await expect(rolledBack).rejects.toThrow('rolled back');
    await eventually('it runs', async () => (await effects(id)) === 1);
    expect(await verdicts(id)).toEqual(['ledger d']);
  });

  it('unless the savepoint around it is rolled back, while the transaction commits', async () => {
    const { id } = await publish(event, { delay: '20h' });
    await app.dataSource.transaction(async (manager) => {
      await manager
        .transaction(async () => {
          await app.publisher.cancel({ id });
          throw new Error('only the savepoint');
        })
        .catch(() => {});
      await manager.query(`INSERT INTO notes VALUES ('after the savepoint')`);
    });
    expect(await verdicts(id)).toEqual([]);
    expect(await left(id)).toBe(1);
  });

  it('too late for one that runs: said soon, and the transaction goes on', async () => {
    const { id, open } = await running();
    const ms = await app.dataSource.transaction(async (manager) => {
      const since = performance.now();
      expect(await app.publisher.cancel({ id })).toEqual({ cancelled: 0, tooLate: 1 });
      const took = performance.now() - since;
      await manager.query(`INSERT INTO notes VALUES ('written after it was too late')`);
      return took;
    });
    // 50 ms and what a busy machine adds.
    expect(ms).toBeLessThan(2_000);
    open();
    await eventually('it is handled', async () => (await effects(id)) === 1);
    expect(
      await stage.database.value(`SELECT count(*)::int FROM notes WHERE note = 'written after it was too late'`),
    ).toBe(1);
  });

  it('too late for what has ended; neither for what was cancelled before, or never was', async () => {
    const done = await handled();
    expect(await cancel(done)).toEqual({ cancelled: 0, tooLate: 1 });
    const dead = await publish(last, {}, { does: 'fail' });
    await eventually('one is dead', async () => (await verdicts(dead.id))[0] === 'last x');
    expect(await cancel(dead.id)).toEqual({ cancelled: 0, tooLate: 1 });
    expect(await verdicts(dead.id)).toEqual(['last x']);
    const { id } = await publish(event, { delay: '20h' });
    await cancel(id);
    expect(await cancel(id)).toEqual({ cancelled: 0, tooLate: 0 });
    expect(await cancel('01900000-0000-7000-8000-000000000000')).toEqual({ cancelled: 0, tooLate: 0 });
  });

  it('each durable by itself', async () => {
    const id = await retrying(pair);
    await eventually('the other one has done its work', async () => (await effects(id)) === 1);
    expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 1 });
    expect(await verdicts(id)).toEqual(['does d', 'fails c']);
  });

  it('its unique key is free again, in the same transaction, too', async () => {
    const first = await publish(event, { unique: 'one', delay: '20h' });
    const apart = await publish(event, { unique: 'two', delay: '20h' });
    const second = await app.dataSource.transaction(async () => {
      expect(await app.publisher.cancel({ event, unique: 'one' })).toEqual({ cancelled: 1, tooLate: 0 });
      return app.publisher.publish(event, { n: 0 }, { unique: 'one', delay: '20h' });
    });
    expect(second.duplicate).toBe(false);
    expect(second.id).not.toBe(first.id);
    expect(await verdicts(first.id)).toEqual(['all c', 'ledger c']);
    expect(await verdicts(apart.id)).toEqual([]);
    // It stands for the new one from now on.
    expect(await cancel(first.id)).toEqual({ cancelled: 0, tooLate: 0 });
    expect((await publish(event, { unique: 'one' })).id).toBe(second.id);
  });

  it('a key and a subject are of one tenant and type', async () => {
    const of = (tenantId?: string) =>
      app.publisher.publishNow(
        event,
        { n: 0 },
        { unique: 'key', subject: 'about', delay: '20h', ...(tenantId ? { tenantId } : {}) },
      );
    const [none, acme, other] = [await of(), await of('acme'), await of('other')];
    await publish(nobody, { subject: 'about', delay: '20h' });
    await app.dataSource.transaction(async (manager) => {
      const { publisher } = app;
      expect(await publisher.cancel({ event: nobody, unique: 'key' })).toEqual({ cancelled: 0, tooLate: 0 });
      await manager.query(`SELECT set_config('app.tenant_id', 'acme', true)`);
      expect(await publisher.cancel({ event, unique: 'key' })).toEqual({ cancelled: 1, tooLate: 0 });
      expect(await publisher.cancel({ event, subject: 'about' })).toEqual({ cancelled: 0, tooLate: 0 });
      expect(await publisher.cancel({ event, subject: 'about', tenantId: 'other' })).toEqual({
        cancelled: 1,
        tooLate: 0,
      });
    });
    expect(await Promise.all([none, acme, other].map(({ id }) => verdicts(id)))).toEqual([
      [],
      ['all c', 'ledger c'],
      ['all c', 'ledger c'],
    ]);
  });

  it('of a subject all that is open, and what is history is not counted', async () => {
    const options = { subject: 'invoice 7' };
    const done = await publish(event, options);
    await eventually('one is handled', async () => (await effects(done.id)) === 1);
    const ids = [
      await publish(event, { ...options, delay: '20h' }),
      await publish(event, { ...options, delay: '30d' }),
      await publish(event, options, { does: 'fail' }),
    ].map(({ id }) => id);
    await eventually('one waits for its next attempt', () =>
      stage.database.value<boolean>('SELECT count(*) = 1 FROM outbox.deliveries WHERE event_id = $1 AND attempt = 1', [
        ids[2],
      ]),
    );
    const bySubject = () => app.dataSource.transaction(() => app.publisher.cancel({ event, subject: 'invoice 7' }));
    expect(await bySubject()).toEqual({ cancelled: 3, tooLate: 0 });
    for (const id of ids) expect(await verdicts(id)).toEqual(['all c', 'ledger c']);
    expect(await bySubject()).toEqual({ cancelled: 0, tooLate: 0 });
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'] as const)(
    '%s: by the mark alone, when its row has moved',
    async (level) => {
      const first = await running(single);
      const waits = await publish(single, { delay: '500ms', unique: `key ${level}` });
      const answer = await app.dataSource.transaction(level, async (manager) => {
        await manager.query('SELECT count(*) FROM notes');
        await eventually('it is forwarded, which the transaction cannot see', () =>
          stage.database.value<boolean>('SELECT count(*) = 0 FROM outbox.queue WHERE event_id = $1', [waits.id]),
        );
        const cancelled = await app.publisher.cancel({ id: waits.id });
        await manager.query('INSERT INTO notes VALUES ($1)', [level]);
        return cancelled;
      });
      expect(answer).toEqual({ cancelled: 1, tooLate: 0 });
      first.open();
      await nothingCame(waits.id);
      expect(await stage.database.value('SELECT count(*)::int FROM notes WHERE note = $1', [level])).toBe(1);
    },
  );

  it.each(['REPEATABLE READ', 'SERIALIZABLE'] as const)('%s: too late when it was handled since', async (level) => {
    const waits = await publish(event, { delay: '300ms' });
    const answer = await app.dataSource.transaction(level, async (manager) => {
      await manager.query('SELECT count(*) FROM notes');
      await eventually('it is handled, which the transaction cannot see', async () => (await effects(waits.id)) === 1);
      const cancelled = await app.publisher.cancel({ id: waits.id });
      await manager.query('INSERT INTO notes VALUES ($1)', [`late ${level}`]);
      return cancelled;
    });
    expect(answer).toEqual({ cancelled: 0, tooLate: 1 });
    expect(await stage.database.value('SELECT count(*)::int FROM notes WHERE note = $1', [`late ${level}`])).toBe(1);
    expect(await verdicts(waits.id)).toEqual(['ledger d']);
  });

  it('two at once: one cancels, the other is told too late and goes on; when the first rolls back it can be said again', async () => {
    for (const type of [event, nobody]) {
      const { id } = await publish(type, { delay: '20h' });
      const first = app.dataSource.createQueryRunner();
      await first.startTransaction();
      expect(await app.publisher.with(first).cancel({ id })).toEqual({ cancelled: 1, tooLate: 0 });
      await app.dataSource.transaction(async (manager) => {
        expect(await app.publisher.cancel({ id })).toEqual({ cancelled: 0, tooLate: 1 });
        await manager.query(`INSERT INTO notes VALUES ('the second one')`);
      });
      await first.rollbackTransaction();
      await first.release();
      expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 0 });
    }
  });

  it('too late while an open transaction was told that it stands for its own', async () => {
    const { id } = await publish(event, { unique: 'shared', delay: '20h' });
    const twin = app.dataSource.createQueryRunner();
    await twin.startTransaction();
    expect(await app.publisher.with(twin).publish(event, { n: 0 }, { unique: 'shared' })).toEqual({
      id,
      duplicate: true,
    });
    await app.dataSource.transaction(async (manager) => {
      expect(await app.publisher.cancel({ id })).toEqual({ cancelled: 0, tooLate: 1 });
      await manager.query(`INSERT INTO notes VALUES ('after the twin')`);
    });
    await twin.commitTransaction();
    await twin.release();
    expect(await verdicts(id)).toEqual([]);
    expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 0 });
  });

  it('a day that is being forgotten, or a job of the relay, breaks no transaction', async () => {
    const { id } = await publish(event, { delay: '20h' });
    const far = await publish(event, { delay: '30d' });
    const bucket = await stage.database.value<number>('SELECT outbox.bucket($1)::int', [id]);
    await other(async (client) => {
      await client.query('BEGIN');
      await client.query(`LOCK TABLE outbox.events_${bucket} IN ACCESS EXCLUSIVE MODE`);
      await client.query('SELECT 1 FROM outbox.scheduled WHERE id = $1 FOR UPDATE', [far.id]);
      await app.dataSource.transaction(async (manager) => {
        expect(await app.publisher.cancel({ id })).toEqual({ cancelled: 0, tooLate: 1 });
        expect(await app.publisher.cancel({ id: far.id })).toEqual({ cancelled: 0, tooLate: 1 });
        await manager.query(`INSERT INTO notes VALUES ('while a day was forgotten')`);
      });
      await client.query('ROLLBACK');
    });
    expect([await cancel(id), await cancel(far.id)]).toEqual([
      { cancelled: 1, tooLate: 0 },
      { cancelled: 1, tooLate: 0 },
    ]);
  });

  it('what the relay has in hand goes its way and finds the mark', async () => {
    const { id } = await publish(event, { delay: '20h' });
    await other(async (client) => {
      await client.query('BEGIN');
      await client.query('SELECT 1 FROM outbox.queue WHERE event_id = $1 FOR UPDATE', [id]);
      expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 0 });
      await client.query('UPDATE outbox.queue SET due_at = clock_timestamp() WHERE event_id = $1', [id]);
      await client.query('COMMIT');
    });
    await eventually('it has left the queue', async () => (await left(id)) === 0);
    await nothingCame(id);
    expect(await verdicts(id)).toEqual(['all c', 'ledger c']);
  });

  it('what could not be forwarded is cancelled with its letter, and no more refused', async () => {
    const { id } = await publish(event, { delay: '20h' });
    const refused = await publish(event, { delay: '20h' });
    await stage.database.query(
      `WITH q AS (DELETE FROM outbox.queue WHERE event_id = $1)
       INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at) SELECT id, '#relay', type, payload, created_at FROM outbox.events WHERE id = $1`,
      [id],
    );
    await stage.database.query(
      `UPDATE outbox.queue SET attempts = 3, due_at = due_at + interval '1 hour' WHERE event_id = $1`,
      [refused.id],
    );
    expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 0 });
    expect(await stage.database.value('SELECT resolution FROM outbox.dead_letters WHERE event_id = $1', [id])).toBe(
      'cancelled',
    );
    expect(await cancel(refused.id)).toEqual({ cancelled: 1, tooLate: 0 });
    expect(await left(refused.id)).toBe(0);
  });

  it('a durable that registers later, from the beginning, does not get it', async () => {
    const { id } = await publish(late);
    const kept = await publish(late);
    expect(await cancel(id)).toEqual({ cancelled: 1, tooLate: 0 });
    const newcomer = await stage.boot({
      manifest: { accepts: [late] },
      providers: [subscriber(late, 'newcomer', effect, { from: 'beginning' })],
    });
    await eventually('it gets the other', async () => (await effects(kept.id)) === 1);
    await stage.settled();
    expect(await effects(id)).toBe(0);
    await newcomer.close();
  });

  it('nor when it registers while the transaction is open, which keeps neither it nor the relay waiting', async () => {
    const { id } = await publish(open, { delay: '500ms' });
    const kept = await publish(open);
    const runner = app.dataSource.createQueryRunner();
    await runner.startTransaction();
    expect(await app.publisher.with(runner).cancel({ id })).toEqual({ cancelled: 1, tooLate: 0 });
    const newcomer = await stage.boot({
      manifest: { accepts: [open] },
      providers: [subscriber(open, 'another', effect, { from: 'beginning' })],
    });
    await handled();
    await pause(1_000);
    expect(await effects(id)).toBe(0);
    await runner.commitTransaction();
    await runner.release();
    await eventually('it gets the other', async () => (await effects(kept.id)) === 1);
    await stage.settled();
    expect(await effects(id)).toBe(0);
    await newcomer.close();
  });

  it('nor when its row stayed in the queue, because a relay had it that then died', async () => {
    const { id } = await publish(late, { delay: '1h' });
    const relay = new Client({ connectionString: stage.database.url });
    await relay.connect();
    await relay.query('BEGIN');
    await relay.query('SELECT 1 FROM outbox.queue WHERE event_id = $1 FOR UPDATE', [id]);
    await cancel(id);
    await relay.end();
    expect(await left(id)).toBe(1);
    const newcomer = await stage.boot({
      manifest: { accepts: [late] },
      providers: [subscriber(late, 'the-newest', effect, { from: 'beginning' })],
    });
    await stage.database.query('UPDATE outbox.queue SET due_at = clock_timestamp() WHERE event_id = $1', [id]);
    await eventually('it has left the queue', async () => (await left(id)) === 0);
    await stage.settled();
    expect(await effects(id)).toBe(0);
    await newcomer.close();
  });

  it('in a transaction of yours, and in none', async () => {
    const { id } = await publish(event, { delay: '20h' });
    await expect(app.publisher.cancel({ id })).rejects.toThrow(/^'.*' was cancelled outside a transaction/);
    const runner = app.dataSource.createQueryRunner();
    await runner.startTransaction();
    const within = app.publisher.with(runner);
    expect(await within.cancel({ id })).toEqual({ cancelled: 1, tooLate: 0 });
    await runner.rollbackTransaction();
    await expect(within.cancel({ id })).rejects.toThrow(/the cancelling of '.*' came after its transaction had ended/);
    await runner.release();
    let escaped: Promise<unknown> = Promise.resolve();
    await app.dataSource.transaction(async () => {
      escaped = pause(50).then(() => app.publisher.cancel({ id }));
      escaped.catch(() => {});
    });
    await expect(escaped).rejects.toMatchObject({ code: 'OUTBOX_TRANSACTION_FINISHED' });
    // One that is not awaited is waited for before the commit.
    await app.dataSource.transaction(async () => void app.publisher.cancel({ id }));
    expect(await verdicts(id)).toEqual(['all c', 'ledger c']);
  });

  it('what cannot be found is refused before any SQL', async () => {
    await app.dataSource.transaction(async (manager) => {
      const refused = (target: unknown) => expect(app.publisher.cancel(target as never)).rejects;
      await refused({ id: 'seven' }).toThrow('nothing can be cancelled: id is not the id of an event');
      await refused({ id: null }).toThrow(/id is not/);
      await refused({ event: 'test.work.aksed', unique: 'x' }).toThrow(/event is emitted by no module .*did you mean/i);
      await refused({ event, unique: 'a\u0000b' }).toThrow(/unique .*NUL/i);
      await refused({ event, unique: true }).toThrow('unique must be a string, not boolean');
      await refused({ event, subject: '' }).toThrow(/subject is an empty string/);
      await refused({ event, unique: 'x', subject: 'y' }).toThrow(/must be \{ id \}/);
      await refused({ event }).toThrow(/must be \{ id \}/);
      await refused(undefined).toThrow(/must be \{ id \}/);
      await manager.query(`INSERT INTO notes VALUES ('after refusals')`);
    });
    expect(await stage.database.value(`SELECT count(*)::int FROM notes WHERE note = 'after refusals'`)).toBe(1);
  });

  it('the inspector does it by itself, and says so in the audit', async () => {
    const inspector = app.app.get(OutboxInspector);
    const { id } = await publish(event, { delay: '20h', unique: 'audited', tenantId: 'acme' });
    const query = { event, unique: 'audited', tenantId: 'acme' };
    expect(await inspector.cancel({ event, unique: 'audited' })).toEqual({ cancelled: 0, tooLate: 0 });
    expect(await inspector.cancel(query, { by: 'ann', reason: 'asked by phone' })).toEqual({
      cancelled: 1,
      tooLate: 0,
    });
    expect(await inspector.cancel({ id })).toEqual({ cancelled: 0, tooLate: 0 });
    await expect(inspector.cancel({ id: 'seven' })).rejects.toMatchObject({ code: 'OUTBOX_INVALID_CANCEL' });
    const rows = await stage.database.query('SELECT who, action, what, why FROM outbox.audit ORDER BY id');
    expect(rows).toEqual([
      expect.objectContaining({ action: 'cancel', why: null }),
      { who: 'ann', action: 'cancel', what: { ...query, cancelled: 1, tooLate: 0 }, why: 'asked by phone' },
      {
        who: expect.stringContaining(`:${process.pid}`),
        action: 'cancel',
        what: { id, cancelled: 0, tooLate: 0 },
        why: null,
      },
    ]);
  });
});
