import { getDataSourceToken, TypeOrmModule } from '@nestjs/typeorm';
import { type DeliveryContext, EventPublisher, memory, type OutboxEvent, OutboxModule } from 'nestjs-outbox';
import type { Pool } from 'pg';
import { DataSource, EntityManager } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { effect, nothingIsLeft, subscriber, useStage } from '../support/stage.js';
import { bootApp, type TestApp } from '../support/test-app.js';
import { createDatabase, type TestDatabase } from '../support/test-database.js';

const event = 'billing.invoice.paid';
const manifest = { emits: [event] };

/** A handler that writes which app ran it. */
const from = (app: string) => (given: OutboxEvent, context: DeliveryContext) => effect(given, context, '', app);

const publishIn = ({ dataSource, publisher }: TestApp, n: number) =>
  dataSource.transaction(async () => (await publisher.publish(event, { n })).id);

describe('two apps in one process', () => {
  const stage = useStage();
  const effects = (where: string) =>
    stage.database.query<{ event_id: string; durable: string; app: string }>(
      `SELECT event_id, durable, app FROM effects WHERE ${where}`,
    );

  it('on one schema are two replicas: each event is handled once, by either', async () => {
    const [a, b] = await Promise.all(
      ['a', 'b'].map((name) => stage.boot({ manifest, providers: [subscriber(event, 'shared', from(name))] })),
    );
    if (!a || !b) throw new Error('they did not boot');
    const ids = await Promise.all(Array.from({ length: 60 }, (_, n) => publishIn(n % 2 ? a : b, n)));
    await stage.drained();
    const done = await effects(`durable = 'shared'`);
    expect(done.map((row) => row.event_id).sort()).toEqual([...ids].sort());
    // Closing one disturbs nothing of the other.
    await a.close();
    const last = await publishIn(b, 61);
    await eventually('the other goes on', async () => (await effects(`event_id = '${last}'`))[0]?.app === 'b');
    await expect(a.publisher.publish(event, {})).rejects.toMatchObject({ code: 'OUTBOX_NOT_IN_TRANSACTION' });
    await b.close();
  });

  it('do not follow each other’s transactions', async () => {
    const [a, b] = await Promise.all([stage.boot({ manifest }), stage.boot({ manifest })]);
    await a.dataSource.transaction(() =>
      expect(b.publisher.publish(event, {})).rejects.toMatchObject({ code: 'OUTBOX_NOT_IN_TRANSACTION' }),
    );
    await a.dataSource.transaction(() =>
      b.dataSource.transaction(async (manager) => {
        // The innermost of each: what b publishes here is b's, and commits with b's transaction.
        const { id } = await b.publisher.publish(event, {});
        expect(await manager.query('SELECT id FROM outbox.events WHERE id = $1', [id])).toHaveLength(1);
      }),
    );
    await Promise.all([a.close(), b.close()]);
  });

  it('on two schemas of one database do not meet', async () => {
    const boot = (name: string, schema: string) =>
      stage.boot({
        manifest,
        // memory() is refused beside a live worker, so it also shows that neither sees the other's.
        outbox: { transport: memory(), schema: { name: schema, onStart: 'migrate' } },
        providers: [subscriber(event, 'same-name', from(name))],
      });
    const [a, b] = await Promise.all([boot('first', 'outbox_first'), boot('second', 'outbox_second')]);
    const first = await Promise.all(Array.from({ length: 20 }, (_, n) => publishIn(a, n)));
    const second = await Promise.all(Array.from({ length: 20 }, (_, n) => publishIn(b, n)));
    await eventually('both are through', async () => (await effects(`durable = 'same-name'`)).length === 40);
    const of = (app: string, rows: Awaited<ReturnType<typeof effects>>) =>
      rows
        .filter((row) => row.app === app)
        .map((row) => row.event_id)
        .sort();
    const rows = await effects(`durable = 'same-name'`);
    expect(of('first', rows)).toEqual([...first].sort());
    expect(of('second', rows)).toEqual([...second].sort());
    await Promise.all([a.close(), b.close()]);
  });
});

describe('an app with two DataSources', () => {
  const stage = useStage();
  let other: TestDatabase | undefined;

  beforeAll(async () => {
    other = await createDatabase();
  });
  afterAll(() => other?.drop());

  it('follows the one that was named, and leaves the other alone', async () => {
    const billing = TypeOrmModule.forRoot({
      name: 'billing',
      type: 'postgres',
      url: stage.database.url,
      retryAttempts: 0,
    });
    const app = await bootApp({
      // The unnamed one leads elsewhere, where there is no outbox.
      url: other?.url ?? '',
      manifest,
      imports: [billing],
      root: OutboxModule.forRoot({ dataSource: 'billing', schema: { onStart: 'migrate' } }),
      providers: [subscriber(event, 'billing', from('billing'))],
    });
    try {
      const named = app.app.get<DataSource>(getDataSourceToken('billing'));
      const unnamed = app.app.get(DataSource);
      const publisher = app.app.get(EventPublisher);
      const { id } = await named.transaction(() => publisher.publish(event, {}));
      await eventually('it is handled', () =>
        stage.database.value<boolean>('SELECT count(*) = 1 FROM effects WHERE event_id = $1', [id]),
      );
      await unnamed.transaction(() =>
        expect(publisher.publish(event, {})).rejects.toMatchObject({ code: 'OUTBOX_NOT_IN_TRANSACTION' }),
      );
      expect(await unnamed.query(`SELECT to_regnamespace('outbox') IS NULL AS none`)).toEqual([{ none: true }]);
      expect(Object.hasOwn(unnamed.manager, 'transaction')).toBe(false);
      expect(unnamed.subscribers).toEqual([]);
    } finally {
      await app.close();
    }
  });
});

describe('an app that is booted and closed fifty times', () => {
  const stage = useStage();

  const listeners = () =>
    (
      [
        'exit',
        'SIGTERM',
        'SIGINT',
        'SIGHUP',
        'uncaughtException',
        'unhandledRejection',
        'warning',
        'beforeExit',
      ] as const
    )
      .map((name) => `${name} ${process.listenerCount(name)}`)
      .sort();

  /** Timers and sockets that keep the process, by kind. */
  const resources = () => {
    const counts: Record<string, number> = {};
    for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1;
    return {
      timers: counts['Timeout'] ?? 0,
      immediates: counts['Immediate'] ?? 0,
      sockets: counts['TCPSocketWrap'] ?? 0,
    };
  };

  const sessions = () =>
    stage.database.value<number>(
      `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`,
    );

  it('leaves no timer, socket, listener, lock, session, subscriber or patched method', async () => {
    await stage.database.query('SELECT 1');
    const { sockets } = resources();
    const dataSource = await new DataSource({ type: 'postgres', url: stage.database.url, poolSize: 6 }).initialize();
    const token = { provide: DataSource, useValue: dataSource };
    const Given = { module: class GivenModule {}, global: true, providers: [token], exports: [token] };
    const { NestFactory } = await import('@nestjs/core');
    const { transaction } = dataSource.manager;
    const pool = (dataSource.driver as unknown as { master: Pool }).master;
    const poolListeners = () =>
      pool
        .eventNames()
        .map((name) => `${String(name)} ${pool.listenerCount(name)}`)
        .sort();
    const once = async (n: number): Promise<void> => {
      let ran: () => void = () => {};
      const handled = new Promise<void>((resolve) => {
        ran = resolve;
      });
      const app = await NestFactory.createApplicationContext(
        {
          module: class TurnModule {},
          imports: [Given, OutboxModule.forRoot({ schema: { onStart: 'migrate' } }), OutboxModule.forFeature(manifest)],
          providers: [
            subscriber(event, 'again', async (given, context) => {
              await effect(given, context);
              ran();
            }),
          ],
        },
        { logger: false, abortOnError: false },
      );
      expect(dataSource.manager.transaction).not.toBe(transaction);
      await dataSource.transaction(() => app.get(EventPublisher).publish(event, { n }));
      await handled;
      await app.close();
      expect(dataSource.manager.transaction).toBe(transaction);
      expect(dataSource.subscribers).toEqual([]);
    };
    // The first turns fill the pool and the caches that stay.
    for (let n = 0; n < 3; n++) await once(n);
    const quiet = async () => {
      await eventually('only the pool’s sessions are left', async () => (await sessions()) <= 6 + 1);
      const { timers, ...others } = resources();
      // The pool has one for each session that nobody uses.
      return { timers: timers - pool.idleCount, ...others, listeners: listeners(), pool: poolListeners() };
    };
    const before = await quiet();
    for (let n = 3; n < 50; n++) await once(n);
    await nothingIsLeft(stage.database);
    await eventually('no more than before is left', async () => {
      const { timers, immediates, sockets: open, ...after } = await quiet();
      expect(after).toEqual({ listeners: before.listeners, pool: before.pool });
      // Sessions of the pool may have been opened meanwhile, up to its size; timers and all else may not have grown.
      expect(open).toBeLessThanOrEqual(before.sockets + 5);
      expect(timers).toBeLessThanOrEqual(before.timers);
      expect(immediates).toBeLessThanOrEqual(before.immediates);
      return true;
    });
    expect(EntityManager.prototype.transaction).toBe(transaction);
    expect(await stage.database.value(`SELECT count(*)::int FROM effects WHERE durable = 'again'`)).toBe(50);
    expect(await stage.database.query('SELECT * FROM outbox.workers')).toEqual([]);
    await dataSource.destroy();
    await eventually('its sockets are closed', () => resources().sockets <= sockets);
  }, 400_000);
});
