import { TypeOrmModule } from '@nestjs/typeorm';
import type { JobContext, OutboxRootOptions, TenantFailedError, TenantJobContext } from 'nestjs-outbox';
import type { EntityManager } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { Invoice, InvoiceService, Line } from '../support/invoices.js';
import { overOf, retryNow, runsOf, stateOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';

const reasonOf = (work: Promise<unknown>): Promise<Error> =>
  work.then(
    () => new Error('it went through'),
    (error) => error,
  );

describe('ctx.perTenant', () => {
  const stage = useStage();
  const outbox = { tenancy: { list: async () => ['a', 'b', 'c'] } };

  /** Runs a job once, as far as it goes. */
  async function once(name: string, run: (context: JobContext) => unknown, options: OutboxRootOptions = outbox) {
    const app = await stage.boot({ outbox: options, providers: [job(name, yearly, run, { retries: 0 })] });
    await tickNow(stage, app, name);
    const state = await overOf(stage, name);
    await app.close();
    return state;
  }

  it('twice in one run: both run every tenant; when the slot is run again, what each of them had not got to', async () => {
    const ran: string[] = [];
    const run = async ({ perTenant, attempt }: JobContext): Promise<void> => {
      ran.push(`begin ${attempt}`);
      await perTenant(({ tenantId }) => {
        ran.push(`first ${tenantId}`);
        if (tenantId === 'b' && attempt === 1) throw new Error('the first of b');
      });
      await perTenant(({ tenantId }) => {
        ran.push(`second ${tenantId}`);
        if (tenantId === 'c' && attempt === 2) throw new Error('the second of c');
      });
      ran.push('end');
    };
    const app = await stage.boot({ outbox, providers: [job('test.parts', yearly, run, { retries: 2 })] });
    await tickNow(stage, app, 'test.parts');
    await retryNow(stage, app, 'test.parts');
    await retryNow(stage, app, 'test.parts');
    expect(await overOf(stage, 'test.parts')).toMatchObject({ outcome: 'done' });
    expect(ran).toEqual([
      ...['begin 1', 'first a', 'first b', 'first c'],
      ...['begin 2', 'first b', 'second a', 'second b', 'second c'],
      ...['begin 3', 'second c', 'end'],
    ]);
    expect(await stage.database.query('SELECT FROM outbox.job_tenants')).toEqual([]);
    await app.close();
  });

  it('rejects with all that failed, each with its tenant and its cause', async () => {
    const cause = new Error('no credit card');
    let reason: AggregateError | undefined;
    const state = await once('test.joined', async ({ perTenant }) => {
      reason = (await reasonOf(
        perTenant(({ tenantId }) => {
          if (tenantId !== 'b') throw tenantId === 'a' ? cause : 'a text';
        }),
      )) as AggregateError;
    });
    // It was caught, so the job is done.
    expect(state.outcome).toBe('done');
    const [first, second]: TenantFailedError[] = reason?.errors ?? [];
    expect(reason?.errors).toHaveLength(2);
    expect(first).toMatchObject({ job: 'test.joined', tenantId: 'a', message: "tenant 'a': no credit card" });
    expect(first?.cause).toBe(cause);
    expect(second).toMatchObject({ tenantId: 'c', cause: 'a text', message: "tenant 'c': a text" });
    expect(reason?.message).toMatch(
      /^job 'test\.joined', slot 2\d{3}-01-01T00:00:00\.000Z: 2 of 3 tenants failed: tenant 'a'/,
    );
  });

  it('names fifty of a thousand in the message, and has them all', async () => {
    const list = async () => Array.from({ length: 120 }, (_, n) => `t${n}`);
    let reason: AggregateError | undefined;
    await once(
      'test.many',
      async ({ perTenant }) => {
        const fail = () => Promise.reject(new Error('x'.repeat(100_000)));
        reason = (await reasonOf(perTenant(fail, { concurrency: 8 }))) as AggregateError;
      },
      { tenancy: { list } },
    );
    expect(reason?.errors).toHaveLength(120);
    expect(reason?.message).toContain("tenant 't49': xxx");
    expect(reason?.message).not.toContain("tenant 't50': ");
    expect(reason?.message).toMatch(/; and 70 more$/);
    expect(reason?.message.length).toBeLessThan(30_000);
  });

  it.each([0, -1, 1.5, Number.NaN, 9, 1_000])(
    'refuses %d tenants at once: the pool of 10 spares 8',
    async (concurrency) => {
      let ran = 0;
      let reason: Error | undefined;
      await once(`test.at-once${concurrency}`, async ({ perTenant }) => {
        reason = await reasonOf(perTenant(() => void ran++, { concurrency }));
      });
      expect(reason?.message).toMatch(/tenants at once; it is a whole number from 1 to 8/);
      expect(ran).toBe(0);
    },
  );

  it('is refused where every instance would run every tenant, and where nobody lists them', async () => {
    const reasons: Record<string, Error> = {};
    const ask = async ({ perTenant, job: name }: JobContext): Promise<void> => {
      reasons[name] ??= await reasonOf(perTenant(() => {}));
    };
    const app = await stage.boot({
      outbox,
      providers: [job('test.beat', { every: '100ms' }, ask, { parallel: true })],
    });
    await once('test.unlisted', ask, {});
    await eventually('the parallel one has asked', () => reasons['test.beat']);
    expect(reasons['test.beat']?.message).toMatch(/'test\.beat' is parallel: every instance would run every tenant/);
    expect(reasons['test.unlisted']?.message).toMatch(/nobody says which tenants there are: .*tenancy: \{ list/);
    await app.close();
  });
});

describe('a job without perTenant', () => {
  const stage = useStage();

  it('has no transaction and no tenant: it publishes in one of its own, or with publishNow', async () => {
    const seen: unknown[] = [];
    const app = await stage.boot({
      manifest: { emits: ['test.thing.happened'] },
      providers: [
        job('test.bare', yearly, async (context) => {
          const { publisher, dataSource } = app;
          seen.push(Object.keys(context).toSorted());
          seen.push(await reasonOf(publisher.publish('test.thing.happened', {})));
          await publisher.publishNow('test.thing.happened', {});
          await dataSource.transaction(() => publisher.publish('test.thing.happened', {}));
        }),
      ],
    });
    await tickNow(stage, app, 'test.bare');
    expect(await overOf(stage, 'test.bare')).toMatchObject({ outcome: 'done' });
    expect(seen).toEqual([
      ['attempt', 'each', 'isLastAttempt', 'job', 'perTenant', 'signal', 'slot'],
      expect.objectContaining({ code: 'OUTBOX_NOT_IN_TRANSACTION' }),
    ]);
    expect(await stage.database.query('SELECT tenant_id FROM outbox.events')).toEqual([
      { tenant_id: null },
      { tenant_id: null },
    ]);
    await stage.drained();
    await app.close();
  });
});

describe('tenancy.list', () => {
  const stage = useStage();
  const fine = ['a', 'b', 'c'];

  /** What a list may answer, and what comes of it: the tenants that are run, or why the job failed. */
  const answers: Record<string, { answer: unknown; runs?: string[]; error?: RegExp }> = {
    'several times the same': { answer: ['a', 'b', 'a', 'c', 'b'], runs: fine },
    'an empty name': { answer: ['a', ''], error: /answered '' among the tenants/ },
    'a number': { answer: ['a', 7], error: /answered 7 among the tenants/ },
    'a missing one': { answer: ['a', undefined], error: /answered undefined among the tenants/ },
    'missing ones alone': { answer: [undefined, undefined], error: /answered undefined among the tenants/ },
    'null among them': { answer: [null], error: /answered null among the tenants/ },
    'rows in place of names': { answer: [{ id: 'a' }], error: /answered \{ id: 'a' \} among the tenants/ },
    'nothing at all': { answer: undefined, error: /answered undefined/ },
    null: { answer: null, error: /answered null/ },
    'one text': { answer: 'abc', error: /answered 'abc'/ },
    'a Set': { answer: new Set(fine), error: /answered Set\(3\)/ },
    'odd names': {
      answer: ["it's", 'früh', 'a"b', '%', 'x'.repeat(300)],
      runs: ["it's", 'früh', 'a"b', '%', 'x'.repeat(300)],
    },
  };

  it.each(Object.entries(answers))('answers %s', async (what, { answer, runs = [], error }) => {
    const name = `test.${what.replaceAll(/\W/g, '-')}`;
    const ran: string[] = [];
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => answer as string[] } },
      providers: [job(name, yearly, ({ tenantId }) => void ran.push(tenantId), { perTenant: {}, retries: 0 })],
    });
    await tickNow(stage, app, name);
    const state = await overOf(stage, name);
    expect(state.outcome).toBe(error ? 'failed' : 'done');
    if (error) expect(state.last_error).toMatch(error);
    expect(ran).toEqual(runs);
    await app.close();
  });

  it('that rejects fails the attempt; the next one asks again', async () => {
    let asked = 0;
    const ran: string[] = [];
    const list = async (manager: EntityManager): Promise<string[]> => {
      asked += 1;
      if (asked === 1) throw new Error('the directory is away');
      // An SQL error that is swallowed is no answer.
      if (asked === 2) await manager.query('SELECT 1 / 0').catch(() => {});
      return fine;
    };
    const app = await stage.boot({
      outbox: { tenancy: { list } },
      providers: [job('test.asks', yearly, ({ tenantId }) => void ran.push(tenantId), { perTenant: {} })],
    });
    await tickNow(stage, app, 'test.asks');
    await retryNow(stage, app, 'test.asks');
    await retryNow(stage, app, 'test.asks');
    await overOf(stage, 'test.asks');
    expect(ran).toEqual(fine);
    const told = (await runsOf(stage, 'test.asks')).map(({ outcome, error }) => [outcome, error]);
    expect(told).toEqual([
      ['failed', expect.stringContaining('the directory is away')],
      ['failed', expect.stringContaining('job test.asks, tenancy.list')],
      ['done', null],
    ]);
    await app.close();
  });
});

describe('an injected repository in a tenant’s run', () => {
  const stage = useStage();
  const entities = [Invoice, Line];

  async function boot(name: string, repositories: 'guard' | 'join', run: (context: TenantJobContext) => unknown) {
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => ['a', 'b'] }, transactions: { repositories } },
      typeorm: { entities, synchronize: true },
      imports: [TypeOrmModule.forFeature(entities)],
      providers: [InvoiceService, job(name, yearly, run, { perTenant: {}, retries: 0 })],
    });
    return app;
  }

  it('is refused, reads as well: it is on another connection, without a tenant', async () => {
    const codes: unknown[] = [];
    const app = await boot('test.stray', 'guard', async ({ tenantId }) => {
      const service = app.app.get(InvoiceService);
      const reasons = await Promise.all([
        reasonOf(service.create(`stray of ${tenantId}`)),
        reasonOf(service.repository.find()),
        reasonOf(app.dataSource.query('SELECT 1')),
      ]);
      codes.push(...reasons.map((reason) => (reason as { code?: string }).code));
      throw reasons[0];
    });
    await tickNow(stage, app, 'test.stray');
    await overOf(stage, 'test.stray');
    expect(codes).toEqual(Array.from({ length: 6 }, () => 'OUTBOX_STRAY_WRITE'));
    expect(await stage.database.query('SELECT title FROM invoice')).toEqual([]);
    expect((await stateOf(stage, 'test.stray'))?.last_error).toMatch(/job test\.stray, tenant a/);
    await app.close();
  });

  it("takes part with repositories: 'join', and is undone with the tenant", async () => {
    const app = await boot('test.join', 'join', async ({ tenantId, manager }) => {
      const service = app.app.get(InvoiceService);
      await service.create(`of ${tenantId}`);
      expect(await manager.find(Invoice)).toHaveLength(1);
      if (tenantId === 'b') await manager.query('DELETE FROM invoice');
      if (tenantId === 'a') throw new Error('undone');
    });
    await tickNow(stage, app, 'test.join');
    await overOf(stage, 'test.join');
    expect(await stage.database.query('SELECT title FROM invoice')).toEqual([]);
    expect((await stateOf(stage, 'test.join'))?.last_error).toMatch(/1 of 2 tenants failed: tenant 'a': undone/);
    await app.close();
  });

  it('is no stray in the job itself, which has no transaction', async () => {
    const app = await stage.boot({
      typeorm: { entities, synchronize: true },
      imports: [TypeOrmModule.forFeature(entities)],
      providers: [InvoiceService, job('test.plain', yearly, () => app.app.get(InvoiceService).create('plain'))],
    });
    await tickNow(stage, app, 'test.plain');
    expect(await overOf(stage, 'test.plain')).toMatchObject({ outcome: 'done' });
    expect(await stage.database.query('SELECT title FROM invoice')).toEqual([{ title: 'plain' }]);
    await app.close();
  });
});
