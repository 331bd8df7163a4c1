import type { JobContext, RowContext, RowFailedError, TenantJobContext } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { overOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';
import type { TestAppOptions } from '../support/test-app.js';

const setup = `CREATE TABLE done (row text, tenant text DEFAULT current_setting('app.tenant_id', true),
  xact xid8 DEFAULT pg_current_xact_id())`;

const insert = (row: string, { manager }: Pick<RowContext, 'manager'>) =>
  manager.query('INSERT INTO done (row) VALUES ($1)', [row]);
const reasonOf = (work: Promise<unknown>): Promise<Error | undefined> =>
  work.then(
    () => undefined,
    (error) => error,
  );

describe('the rows of ctx.each', () => {
  const stage = useStage(setup);
  const rowsDone = (like = '%') =>
    stage.database.query<{ row: string; tenant: string; xact: string }>(
      'SELECT * FROM done WHERE row LIKE $1 ORDER BY xact',
      [like],
    );

  beforeEach(() => stage.database.query('TRUNCATE done'));

  let count = 0;
  /** Runs a job once; what it did with its context is in the hands of the test. */
  async function once(run: (context: JobContext) => unknown, options: Omit<TestAppOptions, 'url'> = {}) {
    count += 1;
    const name = `test.rows-${count}`;
    const app = await stage.boot({ ...options, providers: [job(name, yearly, run, { retries: 0 })] });
    await tickNow(stage, app, name);
    const state = await overOf(stage, name);
    await app.close();
    return { ...state, log: app.log };
  }

  it('are each a transaction of its own, one after the other, without a tenant in a job without one', async () => {
    let running = 0;
    const contexts: Partial<RowContext>[] = [];
    const state = await once(async ({ each }) => {
      await each(['a', 'b', 'c'], async (row, context) => {
        expect(++running).toBe(1);
        contexts.push(context);
        await insert(row, context);
        running -= 1;
      });
    });
    expect(state.outcome).toBe('done');
    const rows = await rowsDone();
    expect(rows.map(({ row, tenant }) => [row, tenant])).toEqual([
      ['a', ''],
      ['b', ''],
      ['c', ''],
    ]);
    expect(new Set(rows.map(({ xact }) => xact)).size).toBe(3);
    expect(contexts.map(({ tenantId }) => tenantId)).toEqual([null, null, null]);
    expect(new Set(contexts.map(({ manager }) => manager)).size).toBe(3);
  });

  it('one that fails stops no other; all that failed are told, each with its place, itself and its cause', async () => {
    const cause = new Error('no such customer');
    const rows = [{ id: 1 }, { id: 2 }, { id: 3 }, { id: 4 }, { id: 5 }];
    let reason: AggregateError | undefined;
    const state = await once(async ({ each }) => {
      reason = (await reasonOf(
        each(rows, async (row, context) => {
          await insert(`${row.id}`, context);
          if (row.id === 2) throw cause;
          // A swallowed SQL error cannot commit; an un-awaited nested transaction must not.
          if (row.id === 4) await context.manager.query('SELECT 1 / 0').catch(() => {});
          if (row.id === 5) await context.manager.queryRunner?.startTransaction();
        }),
      )) as AggregateError;
      throw reason;
    });
    expect((await rowsDone()).map(({ row }) => row)).toEqual(['1', '3']);
    const failed: RowFailedError[] = reason?.errors ?? [];
    expect(failed.map(({ index, row }) => [index, row])).toEqual([
      [1, rows[1]],
      [3, rows[3]],
      [4, rows[4]],
    ]);
    for (const error of failed)
      expect(error).toMatchObject({
        name: 'RowFailedError',
        code: 'OUTBOX_ROW_FAILED',
        message: expect.stringMatching(/^row \d: /),
      });
    expect(failed[0]?.cause).toBe(cause);
    expect(failed[1]?.cause).toMatchObject({ code: 'OUTBOX_SWALLOWED_SQL_ERROR' });
    expect(reason?.message).toMatch(/3 of 5 rows failed: row 1: no such customer; row 3: /);
    expect(state).toMatchObject({ outcome: 'failed', last_error: expect.stringContaining('3 of 5 rows failed') });
  });

  it('may come from anything that can be gone through, also one that waits', async () => {
    async function* slowly() {
      for (const row of ['slow 1', 'slow 2']) {
        await new Promise((resolve) => setImmediate(resolve));
        yield row;
      }
    }
    function* quickly() {
      yield* ['quick 1', 'quick 2'];
    }
    await once(async ({ each }) => {
      await each(slowly(), insert);
      await each(quickly(), insert);
      await each(new Set(['set']), insert);
      await each([], insert);
      await each([Promise.resolve('promise')], (row, context) => insert(`${row}`, context));
    });
    expect((await rowsDone()).map(({ row }) => row)).toEqual([
      'slow 1',
      'slow 2',
      'quick 1',
      'quick 2',
      'set',
      'promise',
    ]);
  });

  it('are in the tenant that the job runs for, and are for themselves: the tenant may fail and they stay', async () => {
    const run = async ({ each, tenantId, manager }: TenantJobContext): Promise<void> => {
      await insert(`${tenantId} itself`, { manager });
      await each(['1', '2'], (row, context) => {
        expect(context.tenantId).toBe(tenantId);
        return insert(`${tenantId} ${row}`, context);
      });
      if (tenantId === 'b') throw new Error('b fails');
    };
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => ['a', 'b'] } },
      providers: [job('test.tenant-rows', yearly, run, { perTenant: {}, retries: 0 })],
    });
    await tickNow(stage, app, 'test.tenant-rows');
    await overOf(stage, 'test.tenant-rows');
    await app.close();
    const rows = await rowsDone();
    expect(rows.map(({ row, tenant }) => [row, tenant]).toSorted()).toEqual([
      ['a 1', 'a'],
      ['a 2', 'a'],
      ['a itself', 'a'],
      ['b 1', 'b'],
      ['b 2', 'b'],
    ]);
    expect(new Set(rows.map(({ xact }) => xact)).size).toBe(5);
  });

  it('stop between two of them when the job is asked to end; what had failed before is told with it', async () => {
    const rows: string[] = [];
    let finished = false;
    let reason: AggregateError | undefined;
    function* many() {
      try {
        for (let n = 0; n < 1_000; n++) yield `${n}`;
      } finally {
        finished = true;
      }
    }
    const run = async ({ each, signal }: JobContext): Promise<void> => {
      // Before the time is over, three rows are done and the fourth has begun.
      const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve));
      reason = (await reasonOf(
        each(many(), async (row, context) => {
          rows.push(row);
          await insert(row, context);
          if (row === '1') throw new Error('row 1 is broken');
          if (row === '3') await aborted;
        }),
      )) as AggregateError;
      throw reason;
    };
    const app = await stage.boot({ providers: [job('test.ends', yearly, run, { timeout: '3s', retries: 0 })] });
    await tickNow(stage, app, 'test.ends');
    const state = await overOf(stage, 'test.ends');
    await app.close();
    // The row under way is seen through.
    expect(rows).toEqual(['0', '1', '2', '3']);
    expect((await rowsDone()).map(({ row }) => row)).toEqual(['0', '2', '3']);
    expect(finished).toBe(true);
    expect(reason).toBeInstanceOf(AggregateError);
    expect(reason?.errors).toMatchObject([{ index: 1 }]);
    expect(reason?.cause).toMatchObject({ code: 'OUTBOX_JOB_TIMEOUT' });
    expect(state.last_error).toMatch(
      /1 of 4 rows failed: row 1: row 1 is broken; ended after row 3: job 'test\.ends' has run for 3000 ms/,
    );
  });

  it('end with what they come from; what had failed before is told with it', async () => {
    const away = new Error('the cursor is away');
    let reason: AggregateError | undefined;
    await once(async ({ each }) => {
      async function* cursor() {
        yield* ['0', '1'];
        throw away;
      }
      reason = (await reasonOf(
        each(cursor(), (row) => {
          if (row === '0') throw new Error('row 0 is broken');
        }),
      )) as AggregateError;
    });
    expect(reason?.errors).toMatchObject([{ index: 0 }]);
    expect(reason?.cause).toBe(away);
    expect(reason?.message).toMatch(
      /1 of 2 rows failed: row 0: row 0 is broken; ended after row 1: the cursor is away/,
    );
  });

  it('the tenants of several jobs leave connections of the pool to their rows', async () => {
    const begun: string[] = [];
    const names = ['test.narrow-a', 'test.narrow-b', 'test.narrow-c'];
    const run = async ({ each, job: name, tenantId }: TenantJobContext): Promise<void> => {
      begun.push(name);
      // All of them have tenants under way, if they can.
      await eventually('the others have begun', () => names.every((other) => begun.includes(other)), 500).catch(
        () => {},
      );
      await each(['1', '2'], (row, context) => insert(`${name} ${tenantId} ${row}`, context));
    };
    const app = await stage.boot({
      typeorm: { poolSize: 4 },
      outbox: { tenancy: { list: async () => ['a', 'b', 'c', 'd'] } },
      providers: names.map((name) => job(name, yearly, run, { perTenant: { concurrency: 2 }, retries: 0 })),
    });
    for (const name of names) await tickNow(stage, app, name);
    for (const name of names) expect(await overOf(stage, name)).toMatchObject({ outcome: 'done' });
    expect(await rowsDone()).toHaveLength(24);
    await app.close();
  });
});
