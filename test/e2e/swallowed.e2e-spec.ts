import type { DeliveryContext } from 'nestjs-outbox';
import { EntitySchema, type QueryRunner } from 'typeorm';
import { eventually, gate } from '../support/eventually.js';
import { type Run, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

interface Order {
  readonly id?: number;
  readonly eventId: string;
}

const orders = new EntitySchema<Order>({
  name: 'Order',
  tableName: 'orders',
  columns: { id: { type: 'int', primary: true, generated: true }, eventId: { type: 'uuid', name: 'event_id' } },
});

const healthy = 'test.handler.asked';

/** What a handler may do to its transaction, and what must come of it. */
interface Case {
  readonly run: Run<unknown>;
  /** `done`: the mark and the effects stand. `failed`: neither does, and one attempt says why. */
  readonly outcome: 'done' | 'failed';
  readonly orders: number;
  /** In the text of the attempt. */
  readonly error?: RegExp;
  /** A line of the log. */
  readonly log?: RegExp;
}

const insert = (context: DeliveryContext, eventId: string) =>
  context.manager.query('INSERT INTO orders (event_id) VALUES ($1)', [eventId]);
const broken = (context: DeliveryContext) => context.manager.query('INSERT INTO orders (event_id) VALUES (NULL)');
const runnerOf = (context: DeliveryContext): QueryRunner => {
  const runner = context.manager.queryRunner;
  if (!runner) throw new Error('the manager of a handler has a runner');
  return runner;
};

/** Handlers that leave something running wait for the test before it goes on. */
const later = gate();
const late: Record<string, Promise<unknown>> = {};
let publishLate: () => Promise<unknown> = () => Promise.reject(new Error('there is no app yet'));
const outcomeOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'went through',
    (error) => error.code ?? error.name,
  );

const cases: Record<string, Case> = {
  'saves, a nested transaction that commits, and one that fails and is caught': {
    run: async (event, context) => {
      await context.manager.save(orders, { eventId: event.id });
      await context.manager.transaction((nested) => nested.save(orders, { eventId: event.id }));
      await context.manager
        .transaction(async (nested) => {
          await nested.save(orders, { eventId: event.id });
          throw new Error('only the savepoint');
        })
        .catch(() => {});
    },
    outcome: 'done',
    orders: 2,
  },
  'two saves in parallel': {
    run: (event, context) =>
      Promise.all([
        context.manager.save(orders, { eventId: event.id }),
        context.manager.save(orders, { eventId: event.id }),
      ]),
    outcome: 'done',
    orders: 2,
  },
  'an SQL error caught around a savepoint, as the message of the error advises': {
    run: async (event, context) => {
      await insert(context, event.id);
      await context.manager.transaction((nested) => nested.query('SELECT 1 / 0')).catch(() => {});
    },
    outcome: 'done',
    orders: 1,
  },
  'an error after writing': {
    run: async (event, context) => {
      await insert(context, event.id);
      throw new Error('thrown by the handler');
    },
    outcome: 'failed',
    orders: 0,
    error: /thrown by the handler/,
  },
  'a swallowed SQL error': {
    run: async (event, context) => {
      await insert(context, event.id);
      await broken(context).catch(() => {});
    },
    outcome: 'failed',
    orders: 0,
    error: /SwallowedSqlError.*handler of 'case-/s,
  },
  'an SQL error of a statement that was not awaited': {
    run: async (event, context) => {
      await insert(context, event.id);
      void broken(context).catch(() => {});
    },
    outcome: 'failed',
    orders: 0,
    error: /SwallowedSqlError/,
  },
  'a stray commitTransaction': {
    run: async (event, context) => {
      await insert(context, event.id);
      await runnerOf(context).commitTransaction();
    },
    outcome: 'failed',
    orders: 0,
    error: /NestedTransactionLeftOpenError|TransactionEndedByHandlerError/,
  },
  'a stray commitTransaction, twice': {
    run: async (event, context) => {
      await insert(context, event.id);
      await runnerOf(context).commitTransaction();
      await runnerOf(context).commitTransaction();
    },
    outcome: 'failed',
    orders: 0,
    error: /typeorm_998/,
  },
  'a stray commitTransaction, twice, the second one caught': {
    run: async (event, context) => {
      await insert(context, event.id);
      await runnerOf(context).commitTransaction();
      await runnerOf(context)
        .commitTransaction()
        .catch(() => {});
    },
    outcome: 'failed',
    orders: 0,
  },
  'a stray rollbackTransaction': {
    run: async (event, context) => {
      await insert(context, event.id);
      await runnerOf(context).rollbackTransaction();
    },
    outcome: 'failed',
    orders: 0,
    error: /NestedTransactionLeftOpenError|TransactionEndedByHandlerError/,
  },
  'a nested transaction that is not awaited': {
    run: async (event, context) => {
      const inside = gate();
      const nested = context.manager.transaction(async (manager) => {
        await manager.query('INSERT INTO orders (event_id) VALUES ($1)', [event.id]);
        inside.open();
        await later.passed;
        await manager.query('INSERT INTO orders (event_id) VALUES ($1)', [event.id]);
      });
      late['nested'] = outcomeOf(nested);
      await inside.passed;
    },
    outcome: 'failed',
    orders: 0,
    error: /NestedTransactionLeftOpenError/,
  },
  'nested transactions in parallel': {
    run: async (event, context) => {
      const one = () =>
        context.manager.transaction((nested) => nested.query('INSERT INTO orders (event_id) VALUES ($1)', [event.id]));
      await Promise.all([one(), one(), one()]);
    },
    outcome: 'failed',
    orders: 0,
  },
  'nested transactions in parallel, with what they throw left aside': {
    run: async (event, context) => {
      const one = (fails: boolean) =>
        context.manager.transaction(async (nested) => {
          await nested.query('INSERT INTO orders (event_id) VALUES ($1)', [event.id]);
          if (fails) throw new Error('one of three');
        });
      await Promise.allSettled([one(false), one(true), one(false)]);
    },
    outcome: 'failed',
    orders: 0,
  },
  'a write after the return': {
    run: async (event, context) => {
      await insert(context, event.id);
      late['write'] = outcomeOf(later.passed.then(() => insert(context, event.id)));
      late['publish'] = later.passed.then(() => outcomeOf(publishLate()));
      late['save'] = outcomeOf(later.passed.then(() => context.manager.save(orders, { eventId: event.id })));
    },
    outcome: 'done',
    orders: 1,
  },
  'a deferred constraint that fails at COMMIT': {
    run: async (event, context) => {
      await insert(context, event.id);
      await context.manager.query('INSERT INTO children VALUES (4711)');
    },
    outcome: 'failed',
    orders: 0,
    error: /violates foreign key constraint/,
  },
  'a raw COMMIT, then an error': {
    run: async (event, context) => {
      await insert(context, event.id);
      await context.manager.query('COMMIT');
      throw new Error('after my own COMMIT');
    },
    outcome: 'done',
    orders: 1,
    log: /its work is committed.*after my own COMMIT/,
  },
  'a raw COMMIT, then the return': {
    run: async (event, context) => {
      await insert(context, event.id);
      await context.manager.query('COMMIT');
    },
    outcome: 'done',
    orders: 1,
    log: /its work is committed.*ended its own transaction/,
  },
  'a raw COMMIT, and a transaction of its own after it': {
    run: async (event, context) => {
      await insert(context, event.id);
      await context.manager.query('COMMIT');
      await context.manager.query('BEGIN');
      await insert(context, event.id);
    },
    outcome: 'done',
    orders: 1,
    log: /its work is committed.*ended its own transaction/,
  },
  'a raw ROLLBACK, then the return': {
    run: async (event, context) => {
      await insert(context, event.id);
      await context.manager.query('ROLLBACK');
    },
    outcome: 'failed',
    orders: 0,
    error: /TransactionEndedByHandlerError/,
  },
  'a raw ROLLBACK, and a transaction of its own after it': {
    run: async (event, context) => {
      await context.manager.query('ROLLBACK');
      await context.manager.query('BEGIN');
      await insert(context, event.id);
    },
    outcome: 'failed',
    orders: 0,
    error: /TransactionEndedByHandlerError/,
  },
};

const typeOf = (i: number) => `test.case-${i}.asked`;

describe('the library proves its commit', () => {
  const stage = useStage(
    'CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL)',
    'CREATE TABLE parents (id int PRIMARY KEY)',
    'CREATE TABLE children (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)',
  );
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({
      providers: [
        // A durable for each, because the lines about one durable are throttled.
        ...Object.values(cases).map(({ run }, i) => subscriber(typeOf(i), `case-${i}`, run, { backoff: ['1h'] })),
        subscriber(healthy, 'healthy', (event, context) => insert(context, event.id)),
      ],
      manifest: { emits: [healthy, ...Object.keys(cases).map((_, i) => typeOf(i))] },
      outbox: { relay: { poll: '50ms' } },
      // So few connections that one left in a bad state is met by the next handler, or by the next query of the app.
      typeorm: { poolSize: 3, entities: [orders] },
    });
    publishLate = () => app.publisher.publish(healthy, {});
  });

  const ordersOf = (id: string) =>
    stage.database.value<number>('SELECT count(*)::int FROM orders WHERE event_id = $1', [id]);
  const marks = (id: string) =>
    stage.database.query('SELECT verdict, attempts FROM outbox.handled WHERE event_id = $1', [id]);
  const attempts = (id: string) =>
    stage.database.query<{ n: number; error: string }>('SELECT n, error FROM outbox.attempts WHERE event_id = $1', [
      id,
    ]);
  const deliveries = (id: string) =>
    stage.database.query('SELECT attempt, interruptions, lease FROM outbox.deliveries WHERE event_id = $1', [id]);
  const decided = (id: string) =>
    eventually('the outcome', async () => (await marks(id)).length + (await attempts(id)).length);

  /** No session keeps a transaction open, every connection of the pool works, and the next event is handled. */
  async function servesOn(): Promise<void> {
    await eventually('no session is left in a transaction', () =>
      stage.database.value<boolean>(
        `SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%')`,
      ),
    );
    const { id } = await app.publisher.publishNow(healthy, {});
    await eventually('a healthy event', () => ordersOf(id));
    const nobody = '00000000-0000-7000-8000-000000000000';
    await stage.database.query('DELETE FROM orders WHERE event_id = $1', [nobody]);
    await Promise.all(
      Array.from({ length: 6 }, () => app.dataSource.query('INSERT INTO orders (event_id) VALUES ($1)', [nobody])),
    );
    expect(await ordersOf(nobody)).toBe(6);
  }

  it.each(Object.entries(cases))('%s', async (kind, { outcome, orders: expected, error, log }) => {
    const { id } = await app.publisher.publishNow(typeOf(Object.keys(cases).indexOf(kind)), { kind });
    await decided(id);
    if (log) await eventually('the log', () => app.log.matching(log).length);
    expect(await ordersOf(id)).toBe(expected);
    if (outcome === 'done') {
      expect(await marks(id)).toEqual([{ verdict: 'd', attempts: 1 }]);
      expect(await attempts(id)).toEqual([]);
      expect(await deliveries(id)).toEqual([]);
    } else {
      expect(await marks(id)).toEqual([]);
      expect(await attempts(id)).toEqual([{ n: 1, error: expect.stringMatching(error ?? /./) }]);
      expect(await deliveries(id)).toEqual([{ attempt: 1, interruptions: 0, lease: null }]);
    }
    await servesOn();
  });

  it('what a handler left running is refused by name, and changes nothing', async () => {
    later.open();
    expect(await late['publish']).toBe('OUTBOX_TRANSACTION_FINISHED');
    // Once the connection is back in the pool TypeORM itself refuses, before the library has to.
    const refused = /^(OUTBOX_TRANSACTION_FINISHED|QueryRunner(Provider)?AlreadyReleasedError)$/;
    for (const name of ['write', 'save', 'nested'])
      expect([name, await late[name]]).toEqual([name, expect.stringMatching(refused)]);
    const kinds = ['a write after the return', 'a nested transaction that is not awaited'];
    const written = `SELECT e.payload->>'kind' AS kind, count(o.id)::int AS n FROM outbox.events e LEFT JOIN orders o ON o.event_id = e.id
      WHERE e.payload->>'kind' = ANY ($1) GROUP BY 1 ORDER BY 1`;
    expect(await stage.database.query(written, [kinds])).toEqual([
      { kind: 'a nested transaction that is not awaited', n: 0 },
      { kind: 'a write after the return', n: 1 },
    ]);
    await servesOn();
  });
});

describe('the settings of the application are as it left them', () => {
  const type = 'test.settings.asked';
  const stage = useStage();
  const names = [
    'lock_timeout',
    'synchronous_commit',
    'enable_seqscan',
    'enable_bitmapscan',
    'statement_timeout',
    'jit',
    'search_path',
  ];
  const seen: Record<string, string>[] = [];
  const settings = async (query: (sql: string) => Promise<{ name: string; setting: string }[]>) => {
    const rows = await query(`SELECT name, current_setting(name) AS setting FROM pg_settings
      WHERE name IN (${[...names, 'transaction_isolation'].map((name) => `'${name}'`).join(', ')})`);
    return Object.fromEntries(rows.map((row) => [row.name, row.setting]));
  };

  const bootWith = (options: string, durable: string, schema: string) =>
    stage.boot({
      providers: [
        subscriber(type, durable, async (_event, context) => {
          seen.push(await settings((sql) => context.manager.query(sql)));
        }),
      ],
      manifest: { emits: [type] },
      outbox: { relay: { poll: '50ms' }, schema: { name: schema, onStart: 'migrate' } },
      typeorm: { poolSize: 3, extra: { options } },
    });

  const handledBy = async (app: TestApp) => {
    const before = seen.length;
    await app.publisher.publishNow(type, {});
    await eventually('the handler', () => seen.length > before);
    return seen.at(-1) ?? {};
  };

  it('inside a handler and after it', async () => {
    const app = await bootWith(
      '-c lock_timeout=1234ms -c synchronous_commit=local -c statement_timeout=4321ms -c search_path=public,pg_temp -c jit=off',
      'ledger',
      'outbox_a',
    );
    const own = await settings((sql) => app.dataSource.query(sql));
    expect(own).toMatchObject({ lock_timeout: '1234ms', synchronous_commit: 'local', enable_seqscan: 'on' });
    expect(await handledBy(app)).toEqual(own);
    await stage.settled('outbox_a');
    // On every connection of the pool, whichever the handler had.
    const after = await Promise.all(Array.from({ length: 9 }, () => settings((sql) => app.dataSource.query(sql))));
    for (const each of after) expect(each).toEqual(own);
  });

  it('but a commit is always flushed, and the isolation is READ COMMITTED, as the claim needs it', async () => {
    const app = await bootWith(
      '-c synchronous_commit=off -c default_transaction_isolation=serializable',
      'mail',
      'outbox_b',
    );
    expect(await handledBy(app)).toMatchObject({ synchronous_commit: 'on', transaction_isolation: 'read committed' });
    await stage.settled('outbox_b');
    const after = await Promise.all(Array.from({ length: 9 }, () => settings((sql) => app.dataSource.query(sql))));
    for (const each of after)
      expect(each).toMatchObject({ synchronous_commit: 'off', transaction_isolation: 'serializable' });
  });
});
