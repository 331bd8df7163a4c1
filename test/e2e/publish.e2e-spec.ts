import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Published, TransactionFinishedError } from 'nestjs-outbox';
import type { QueryRunner } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';
import { tapWire } from '../support/wire-tap.js';

const event = 'billing.invoice.paid';

describe('publish is part of the transaction', () => {
  const stage = useStage('CREATE TABLE invoices (id text PRIMARY KEY)');
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({
      providers: [subscriber(event, 'ledger', (given, context) => effect(given, context))],
      manifest: { emits: [event] },
    });
  });

  const isStored = (id: string) =>
    stage.database.value<boolean>('SELECT EXISTS (SELECT 1 FROM outbox.events WHERE id = $1)', [id]);
  const isHandled = (id: string) =>
    eventually(`the effect of ${id}`, () =>
      stage.database.value<number>('SELECT count(*)::int FROM effects WHERE event_id = $1', [id]),
    );

  /** A runner with a transaction that the test ends itself. */
  async function ownTransaction<T>(work: (runner: QueryRunner) => Promise<T>): Promise<T> {
    const runner = app.dataSource.createQueryRunner();
    await runner.startTransaction();
    try {
      return await work(runner);
    } finally {
      if (runner.isTransactionActive) await runner.rollbackTransaction();
      await runner.release();
    }
  }

  it('a committed event is handled', async () => {
    const { id, duplicate } = await app.dataSource.transaction(() => app.publisher.publish(event, { invoiceId: 'a' }));
    expect(duplicate).toBe(false);
    await isHandled(id);
  });

  it('nobody sees the event before the commit, and a rollback takes it along', async () => {
    let published: Published | undefined;
    const failing = app.dataSource.transaction(async (manager) => {
      await manager.query(`INSERT INTO invoices VALUES ('b')`);
      published = await app.publisher.publish(event, { invoiceId: 'b' });
      expect(await isStored(published.id)).toBe(false);
      throw new Error('changed my mind');
    });
    await expect(failing).rejects.toThrow('changed my mind');
    const id = published?.id ?? '';
    expect(await isStored(id)).toBe(false);
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.queue WHERE event_id = $1', [id])).toBe(0);
    expect(await stage.database.value(`SELECT count(*)::int FROM invoices WHERE id = 'b'`)).toBe(0);
  });

  it('outside a transaction it is refused, with the three ways out', async () => {
    const outside = app.publisher.publish(event, {});
    await expect(outside).rejects.toMatchObject({ code: 'OUTBOX_NOT_IN_TRANSACTION', eventType: event });
    await expect(outside).rejects.toThrow(/dataSource\.transaction.*publisher\.with\(queryRunner\).*publishNow/s);
    await expect(app.publisher.publishMany([{ event, payload: {} }])).rejects.toMatchObject({
      code: 'OUTBOX_NOT_IN_TRANSACTION',
    });
    expect(() => app.publisher.with(app.dataSource.manager)).toThrow(/outside a transaction/);
  });

  it('an event published in a savepoint vanishes with it, and the one around it stays', async () => {
    const ids = await app.dataSource.transaction(async (manager) => {
      const outer = await app.publisher.publish(event, { at: 'outer' });
      let inner: Published | undefined;
      await manager
        .transaction(async () => {
          inner = await app.publisher.publish(event, { at: 'inner' });
          throw new Error('only the savepoint');
        })
        .catch(() => {});
      const kept = await manager.transaction(() => app.publisher.publish(event, { at: 'kept savepoint' }));
      return { outer: outer.id, inner: inner?.id ?? '', kept: kept.id };
    });
    await Promise.all([isHandled(ids.outer), isHandled(ids.kept)]);
    expect(await isStored(ids.inner)).toBe(false);
  });

  it('with(queryRunner) and with(manager) publish in a transaction that the caller opened', async () => {
    const ids = await ownTransaction(async (runner) => {
      const first = await app.publisher.with(runner).publish(event, { by: 'runner' });
      const second = await app.publisher.with(runner.manager).publish(event, { by: 'manager' });
      expect(await isStored(first.id)).toBe(false);
      await runner.commitTransaction();
      return [first.id, second.id];
    });
    await Promise.all(ids.map(isHandled));
    const undone = await ownTransaction(async (runner) => {
      const { id } = await app.publisher.with(runner).publish(event, {});
      await runner.rollbackTransaction();
      return id;
    });
    expect(await isStored(undone)).toBe(false);
  });

  it('publishNow has a transaction of its own, even inside one that rolls back', async () => {
    const { id } = await app.publisher.publishNow(event, {});
    let inside = '';
    await app.dataSource
      .transaction(async () => {
        inside = (await app.publisher.publishNow(event, {}, { tenantId: 'acme' })).id;
        throw new Error('roll back');
      })
      .catch(() => {});
    await Promise.all([isHandled(id), isHandled(inside)]);
    expect(await stage.database.value('SELECT tenant_id FROM outbox.events WHERE id = $1', [inside])).toBe('acme');
  });

  it('publishMany answers for a thousand events in their order', async () => {
    const list = Array.from({ length: 1_000 }, (_, i) => ({
      event,
      payload: { i },
      subject: `s${i}`,
      headers: { i: `${i}` },
    }));
    const published = await app.dataSource.transaction(() => app.publisher.publishMany(list));
    expect(new Set(published.map((p) => p.id)).size).toBe(1_000);
    const rows = await stage.database.query<{ id: string; i: number; subject: string; header: string }>(
      `SELECT id, (payload->>'i')::int AS i, subject, headers->>'i' AS header FROM outbox.events WHERE id = ANY ($1)`,
      [published.map((p) => p.id)],
    );
    const byId = new Map(rows.map((row) => [row.id, row]));
    expect(published.map((p) => byId.get(p.id))).toEqual(
      published.map((p, i) => ({ id: p.id, i, subject: `s${i}`, header: `${i}` })),
    );
    expect(await app.dataSource.transaction(() => app.publisher.publishMany([]))).toEqual([]);
    await stage.settled();
    const handled = 'SELECT count(*)::int FROM effects WHERE event_id = ANY ($1)';
    expect(await stage.database.value(handled, [published.map((p) => p.id)])).toBe(1_000);
  });

  it('publishFor writes the tenant it is given, and texts arrive as they were', async () => {
    const payload = {
      text: `quotes " ' \\ {a,b} 🙂 \u2028`,
      empty: '',
      list: [null, 1.5, -0.25e-7],
      deep: { a: [{}] },
    };
    const { id } = await app.dataSource.transaction(() =>
      app.publisher.publishFor('tenant "7", {x}', event, payload, { subject: 'it\'s "s"', headers: { a: 'b,"c"' } }),
    );
    const [row] = await stage.database.query(
      'SELECT tenant_id, subject, payload, headers FROM outbox.events WHERE id = $1',
      [id],
    );
    expect(row).toEqual({ tenant_id: 'tenant "7", {x}', subject: 'it\'s "s"', payload, headers: { a: 'b,"c"' } });
    const [many] = await app.dataSource.transaction(() =>
      app.publisher.publishMany([
        { event, payload, tenantId: 'tenant "7", {x}', subject: 'it\'s "s"', headers: { a: 'b,"c"' } },
      ]),
    );
    const [same] = await stage.database.query(
      'SELECT tenant_id, subject, payload, headers FROM outbox.events WHERE id = $1',
      [many?.id],
    );
    expect(same).toEqual(row);
  });

  it('publishes that were not awaited are waited for, and commit', async () => {
    const started: Promise<Published>[] = [];
    await app.dataSource.transaction(async () => {
      // Many, because they take turns on the connection: the last ones are still to be sent when the callback returns.
      for (let i = 0; i < 20; i++) started.push(app.publisher.publish(event, { i }));
    });
    const ids = (await Promise.all(started)).map((published) => published.id);
    // All of them in one transaction: sent after its COMMIT, they would be there, too, each in one of its own.
    const [stored] = await stage.database.query(
      'SELECT count(*)::int AS events, count(DISTINCT xmin::text)::int AS transactions FROM outbox.events WHERE id = ANY ($1)',
      [ids],
    );
    expect(stored).toEqual({ events: 20, transactions: 1 });
  });

  it('when a publish that was not awaited fails, the transaction does not pretend to have committed', async () => {
    const lost = app.dataSource.transaction(async (manager) => {
      await manager.query(`INSERT INTO invoices VALUES ('c')`);
      await manager.query('SET LOCAL statement_timeout = 1');
      // A thousand events do not fit into a millisecond.
      const many = Array.from({ length: 1_000 }, (_, i) => ({ event, payload: { i } }));
      void app.publisher.publishMany(many).catch(() => {});
    });
    await expect(lost).rejects.toThrow(/statement timeout/);
    expect(await stage.database.value(`SELECT count(*)::int FROM invoices WHERE id = 'c'`)).toBe(0);
  });

  it('a publish after the end of its transaction is rejected by name', async () => {
    let late: (() => Promise<Published>) | undefined;
    const opened: { turn?: () => void } = {};
    const ended = new Promise<void>((resolve) => {
      opened.turn = resolve;
    });
    let rejection: Promise<TransactionFinishedError> | undefined;
    await app.dataSource.transaction(async () => {
      late = async () => app.publisher.publish(event, {});
      rejection = ended
        .then(() => app.publisher.publish(event, {}))
        .then(
          () => Promise.reject(new Error('it was published')),
          (error) => error,
        );
    });
    opened.turn?.();
    const error = await rejection;
    expect(error).toMatchObject({ code: 'OUTBOX_TRANSACTION_FINISHED' });
    expect(error?.message).toContain(event);
    // The same call from elsewhere is simply outside.
    await expect(late?.()).rejects.toMatchObject({ code: 'OUTBOX_NOT_IN_TRANSACTION' });
  });

  it('with(runner) after its commit is rejected by name', async () => {
    await ownTransaction(async (runner) => {
      const bound = app.publisher.with(runner);
      await runner.commitTransaction();
      const late = bound.publish(event, {});
      await expect(late).rejects.toMatchObject({ code: 'OUTBOX_TRANSACTION_FINISHED' });
      await expect(late).rejects.toThrow(event);
      expect(() => app.publisher.with(runner)).toThrow(/outside a transaction/);
    });
  });

  it('publishes in parallel give no warning of the driver', async () => {
    const run = (...args: string[]) =>
      new Promise<{ code: number; output: string }>((resolve) => {
        const main = join(process.cwd(), 'dist/test/support/parallel-publish-main.js');
        const env = { ...process.env, DATABASE_URL: stage.database.url };
        execFile(process.execPath, ['--throw-deprecation', main, ...args], { env }, (error, stdout, stderr) =>
          resolve({ code: error ? 1 : 0, output: stdout + stderr }),
        );
      });
    const [ordered, control] = await Promise.all([run(), run('unordered')]);
    expect(ordered).toEqual({ code: 0, output: '' });
    // Were this one silent, too, the first would prove nothing.
    expect(control.code).toBe(1);
    expect(control.output).toMatch(/already executing a query is deprecated/);
  });

  it('is one statement on the connection of the caller', async () => {
    const tap = await tapWire(stage.database.url);
    const tapped = await stage.boot({ url: tap.url, manifest: { emits: [event] }, outbox: { role: 'publisher' } });
    try {
      const counts = await tapped.dataSource.transaction(async (manager) => {
        await manager.query('SELECT 1');
        const from = tap.statements.length;
        await tapped.publisher.publish(event, {});
        await tapped.publisher.publish(event, {}, { delay: '1h' });
        await tapped.publisher.publishFor('acme', event, {}, { runAt: new Date() });
        const single = tap.statements.length - from;
        await tapped.publisher.publishMany(Array.from({ length: 50 }, () => ({ event, payload: {} })));
        return { single, many: tap.statements.length - from - single };
      });
      expect(counts).toEqual({ single: 3, many: 1 });
      const from = tap.statements.length;
      await tapped.publisher.publishNow(event, {});
      expect(tap.statements.length - from).toBe(1);
    } finally {
      await tapped.close();
      await tap.close();
    }
  });

  describe('later', () => {
    const dueIn = (id: string) =>
      stage.database.value<number>(
        'SELECT extract(epoch FROM due_at - now())::float FROM outbox.queue WHERE event_id = $1',
        [id],
      );

    it('a delayed event is not handled before it is due', async () => {
      const { id } = await app.publisher.publishNow(event, {}, { delay: '3s' });
      expect(await dueIn(id)).toBeGreaterThan(0);
      await isHandled(id);
      // By the database's clock: the mark is not older than the event's due time, which is in its id.
      const early = `SELECT h.started_at < e.created_at + interval '3 seconds' FROM outbox.handled h
        JOIN outbox.events e ON e.id = h.event_id WHERE h.event_id = $1`;
      expect(await stage.database.value(early, [id])).toBe(false);
    });

    it('runAt is an instant, and a past one means now', async () => {
      const soon = await stage.database.value<Date>(`SELECT now() + interval '800 milliseconds'`);
      const future = await app.publisher.publishNow(event, {}, { runAt: soon });
      const past = await app.publisher.publishNow(event, {}, { runAt: new Date('1999-12-31T00:00:00Z') });
      const ancient = await app.publisher.publishNow(event, {}, { runAt: new Date(-8.64e15) });
      await Promise.all([future, past, ancient].map(({ id }) => isHandled(id)));
      const started = await stage.database.value<Date>('SELECT started_at FROM outbox.handled WHERE event_id = $1', [
        future.id,
      ]);
      expect(started.getTime()).toBeGreaterThanOrEqual(soon.getTime());
    });

    it('what is due after more than a day waits in scheduled, whole, and is moved when it is due', async () => {
      const [far, near] = await app.dataSource.transaction(() =>
        app.publisher.publishMany([
          { event, payload: { far: true }, delay: '2d', subject: 's', tenantId: 'acme', headers: { a: 'b' } },
          { event, payload: { far: false }, delay: '23h' },
        ]),
      );
      const id = far?.id ?? '';
      expect(await isStored(id)).toBe(false);
      expect(await isStored(near?.id ?? '')).toBe(true);
      const [row] = await stage.database.query(
        `SELECT tenant_id, subject, payload, headers, due_at - created_at > interval '47 hours' AS far FROM outbox.scheduled WHERE id = $1`,
        [id],
      );
      expect(row).toEqual({ tenant_id: 'acme', subject: 's', payload: { far: true }, headers: { a: 'b' }, far: true });
      await stage.database.query('UPDATE outbox.scheduled SET due_at = now() WHERE id = $1', [id]);
      await isHandled(id);
      expect(await stage.database.value('SELECT count(*)::int FROM outbox.scheduled')).toBe(0);
      expect(await stage.database.value('SELECT tenant_id FROM outbox.events WHERE id = $1', [id])).toBe('acme');
      expect(await stage.database.value('SELECT count(*)::int FROM effects WHERE event_id = $1', [near?.id])).toBe(0);
    });
  });
});

describe('the relay is woken by the commit', () => {
  const stage = useStage();
  let app: TestApp;

  beforeAll(async () => {
    // With this poll only a nudge can explain that an event is handled within seconds.
    app = await stage.boot({
      providers: [subscriber(event, 'ledger', (given, context) => effect(given, context))],
      manifest: { emits: [event] },
      outbox: { relay: { poll: '10m' } },
    });
    await relayRests();
  });

  const promptly = (id: string) =>
    eventually(`the effect of ${id}`, () =>
      stage.database.value<number>('SELECT count(*)::int FROM effects WHERE event_id = $1', [id]),
    );
  /** Longer than between two passes of which one brought about the other. */
  const restMs = 300;
  const lastPass = (agoMs = 0) =>
    stage.database.value<Date>(
      `SELECT query_start FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nestjs-outbox relay'
        AND state = 'idle' AND query_start < clock_timestamp() - $1 * interval '1 ms'`,
      [agoMs],
    );
  /** The relay has made its first pass and waits. */
  const relayRests = () => eventually('the first pass', () => lastPass());
  /** A nudge is taken up within a few milliseconds; this is the one place where nothing is what is waited for. */
  async function noPass(work: () => Promise<unknown>): Promise<void> {
    const before = await eventually('the relay rests', () => lastPass(restMs));
    await work();
    await pause(150);
    expect(await lastPass()).toEqual(before);
  }

  it('of transaction(), publishNow and with(runner)', async () => {
    await promptly((await app.dataSource.transaction(() => app.publisher.publish(event, {}))).id);
    await promptly((await app.publisher.publishNow(event, {})).id);
    const runner = app.dataSource.createQueryRunner();
    await runner.startTransaction();
    const { id } = await app.publisher.with(runner).publish(event, {});
    await runner.commitTransaction();
    await runner.release();
    await promptly(id);
  });

  it('and by nothing else: not by a released savepoint, not by a rollback', async () => {
    const ids = await app.dataSource.transaction(async (manager) => {
      const { id } = await app.publisher.publish(event, {});
      await noPass(() => manager.transaction((nested) => nested.query('SELECT 1')));
      return [id];
    });
    await Promise.all(ids.map(promptly));

    const runner = app.dataSource.createQueryRunner();
    await runner.startTransaction();
    const bound = app.publisher.with(runner);
    const { id } = await bound.publish(event, {});
    await noPass(async () => {
      await runner.startTransaction();
      await bound.publish(event, {});
      await runner.commitTransaction();
    });
    await runner.commitTransaction();
    await promptly(id);

    await runner.startTransaction();
    await app.publisher.with(runner).publish(event, {});
    await noPass(() => runner.rollbackTransaction());
    await runner.release();
  });

  it('after a handler has published, too', async () => {
    const follower = await stage.boot({
      providers: [
        subscriber('test.first.done', 'first', async () => {
          await follower.publisher.publish('test.second.done', {});
        }),
        subscriber('test.second.done', 'second', (given, context) => effect(given, context, 'followed')),
      ],
      manifest: { emits: ['test.first.done', 'test.second.done'] },
      outbox: { relay: { poll: '60s' }, schema: { name: 'followers', onStart: 'migrate' } },
    });
    await follower.publisher.publishNow('test.first.done', {});
    await eventually('the follow-up', () =>
      stage.database.value(`SELECT count(*)::int FROM effects WHERE note = 'followed'`),
    );
  });
});
