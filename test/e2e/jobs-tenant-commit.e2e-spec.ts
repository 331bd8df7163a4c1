import type { JobContext, TenantFailedError, TenantJobContext } from 'nestjs-outbox';
import { EntitySchema, type QueryRunner } from 'typeorm';
import { eventually, gate } from '../support/eventually.js';
import { overOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';

interface Order {
  readonly id?: number;
  readonly tenant: string;
}

const orders = new EntitySchema<Order>({
  name: 'Order',
  tableName: 'orders',
  columns: { id: { type: 'int', primary: true, generated: true }, tenant: { type: 'text' } },
});

const setup = [
  'CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text NOT NULL)',
  `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused at the end'; END $$`,
  `CREATE CONSTRAINT TRIGGER late AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
     WHEN (NEW.tenant LIKE '%deferred%') EXECUTE FUNCTION refuse()`,
  'CREATE SEQUENCE conflicts',
  // Counts over rollbacks, so that the third COMMIT passes.
  `CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
     IF nextval('conflicts') < 3 THEN RAISE 'conflict' USING ERRCODE = '40001'; END IF; RETURN NULL; END $$`,
  `CREATE CONSTRAINT TRIGGER clash AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
     WHEN (NEW.tenant LIKE '%conflict%') EXECUTE FUNCTION conflict()`,
];

/** What a tenant's work may do to its transaction, and what must come of it: how many orders it has, or why it failed. */
interface Case {
  run(context: TenantJobContext): unknown;
  readonly orders?: number;
  readonly error?: RegExp;
}

const insert = ({ manager, tenantId }: TenantJobContext) =>
  manager.query('INSERT INTO orders (tenant) VALUES ($1)', [tenantId]);
const broken = ({ manager }: TenantJobContext) => manager.query('INSERT INTO orders (tenant) VALUES (NULL)');
const runnerOf = ({ manager }: TenantJobContext): QueryRunner => {
  if (!manager.queryRunner) throw new Error('the manager of a tenant has a runner');
  return manager.queryRunner;
};

/** What is left running waits for the test. */
const later = gate();
const late: Record<string, Promise<unknown>> = {};
const outcomeOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'went through',
    (error) => error.code ?? error.name,
  );

const cases: Record<string, Case> = {
  'saves, a nested transaction that commits, one that fails and is caught': {
    run: async ({ manager, tenantId }) => {
      await manager.save(orders, { tenant: tenantId });
      await manager.transaction((nested) => nested.save(orders, { tenant: tenantId }));
      await manager
        .transaction(async (nested) => {
          await nested.save(orders, { tenant: tenantId });
          throw new Error('only the savepoint');
        })
        .catch(() => {});
    },
    orders: 2,
  },
  'a conflict at COMMIT, which is tried again': { run: insert, orders: 1 },
  'an error after writing': {
    run: async (context) => {
      await insert(context);
      throw new Error('thrown by the job');
    },
    error: /thrown by the job/,
  },
  'a swallowed SQL error': {
    run: async (context) => {
      await insert(context);
      await broken(context).catch(() => {});
    },
    error: /job test\.proof, tenant a swallowed SQL error/,
  },
  'an SQL error of a statement that was not awaited': {
    run: async (context) => {
      await insert(context);
      void broken(context).catch(() => {});
    },
    error: /SQL error/,
  },
  'a stray COMMIT': {
    run: async (context) => {
      await insert(context);
      await context.manager.query('COMMIT');
    },
    error: /transaction/,
  },
  'a stray ROLLBACK': {
    run: async (context) => {
      await insert(context);
      await context.manager.query('ROLLBACK');
    },
    error: /transaction/,
  },
  'a stray commitTransaction of its runner': {
    run: async (context) => {
      await insert(context);
      await runnerOf(context).commitTransaction();
    },
    error: /transaction/,
  },
  'a nested transaction that is left open': {
    run: async (context) => {
      await insert(context);
      await runnerOf(context).startTransaction();
    },
    error: /nested transaction/,
  },
  'a nested transaction that is not awaited': {
    run: async (context) => {
      await insert(context);
      const begun = gate();
      late[context.tenantId] = outcomeOf(
        context.manager.transaction(async (nested) => {
          begun.open();
          await later.passed;
          await nested.query('INSERT INTO orders (tenant) VALUES ($1)', [context.tenantId]);
        }),
      );
      await begun.passed;
    },
    error: /nested transaction/,
  },
  'a query after its end': {
    run: async (context) => {
      await insert(context);
      late[context.tenantId] = outcomeOf(later.passed.then(() => insert(context)));
    },
    orders: 1,
  },
  'a deferred constraint that refuses': { run: insert, error: /refused at the end/ },
  'the release of its runner': {
    run: async (context) => {
      await insert(context);
      await runnerOf(context).release();
    },
    error: /transaction/,
  },
};

describe('the commit of a tenant is proved, and what goes wrong in it is its failure alone', () => {
  const stage = useStage(...setup);
  let error: AggregateError | undefined;
  let names: string[] = [];

  beforeAll(async () => {
    names = Object.keys(cases);
    const run = async (context: JobContext): Promise<void> => {
      error = await context
        .perTenant((tenant) => cases[tenant.tenantId]?.run(tenant), { concurrency: 4 })
        .then(
          () => undefined,
          (reason) => reason,
        );
    };
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => names } },
      typeorm: { entities: [orders] },
      providers: [job('test.proof', yearly, run)],
    });
    await tickNow(stage, app, 'test.proof');
    await overOf(stage, 'test.proof');
    later.open();
    // The pool is whole: every connection answers, and none is in a transaction.
    await Promise.all(Array.from({ length: 10 }, () => app.dataSource.query('SELECT pg_sleep(0.01)')));
  });

  const failures = () => (error?.errors ?? []) as TenantFailedError[];

  it.each(Object.entries(cases))('%s', async (name, { orders: count = 0, error: says }) => {
    const failure = failures().find(({ tenantId }) => tenantId === name);
    if (says)
      expect(failure).toMatchObject({
        name: 'TenantFailedError',
        code: 'OUTBOX_TENANT_FAILED',
        job: 'test.proof',
        message: expect.stringMatching(/^tenant '/),
        cause: expect.objectContaining({ message: expect.stringMatching(says) }),
      });
    else expect(failure).toBeUndefined();
    // A stray COMMIT commits what was before it: nobody can take that back.
    const expected = name.startsWith('a stray COMMIT') ? 1 : count;
    expect(await stage.database.value('SELECT count(*)::int FROM orders WHERE tenant = $1', [name])).toBe(expected);
  });

  it('what goes on after the end of a tenant is refused', async () => {
    // Their connections are back in the pool, or ended; TypeORM knows.
    for (const name of ['a query after its end', 'a nested transaction that is not awaited'])
      expect({ name, outcome: await late[name] }).toEqual({ name, outcome: 'QueryRunnerProviderAlreadyReleasedError' });
  });

  it('all failures are joined in one error, in the order of the tenants', () => {
    expect(error).toBeInstanceOf(AggregateError);
    const failed = names.filter((name) => cases[name]?.error);
    expect(failures().map(({ tenantId }) => tenantId)).toEqual(failed);
    expect(error?.message).toContain(`${failed.length} of ${names.length} tenants failed`);
    for (const name of failed) expect(error?.message).toContain(`tenant '${name}': `);
  });
});

describe('a tenant and its mark', () => {
  const stage = useStage(...setup);

  it('commit in one transaction: whoever sees the one sees the other', async () => {
    const tenants = Array.from({ length: 200 }, (_, n) => `t${n}`);
    const done = gate();
    const run = async ({ perTenant }: JobContext): Promise<void> => {
      await perTenant(insert, { concurrency: 4 }).finally(() => done.passed);
    };
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => tenants } },
      providers: [job('test.marks', yearly, run)],
    });
    await tickNow(stage, app, 'test.marks');
    // One statement has one snapshot.
    const seen = `SELECT count(o.tenant)::int AS orders, count(t.tenant)::int AS marks, count(*)::int AS both
      FROM orders o FULL JOIN outbox.job_tenants t USING (tenant)`;
    const counts = new Set<number>();
    await eventually('all are through', async () => {
      const [row] = await stage.database.query<{ orders: number; marks: number; both: number }>(seen);
      if (!row) return false;
      expect([row.orders, row.marks]).toEqual([row.both, row.both]);
      counts.add(row.both);
      return row.both === tenants.length;
    }).finally(() => done.open());
    // Some were seen half-way.
    expect(counts.size).toBeGreaterThan(2);
    await overOf(stage, 'test.marks');
    expect(await stage.database.query('SELECT FROM outbox.job_tenants')).toEqual([]);
    await app.close();
  });
});
