import { EventPublisher, outboxSchema, type TenantJobContext } from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { eventually, gate } from '../support/eventually.js';
import { missed, overOf, retryNow, runsOf, stateOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';
import { createRole, describeWithRoles, type TestRole } from '../support/test-role.js';

const notes = [
  `CREATE TABLE tenants (id text)`,
  `INSERT INTO tenants VALUES ('a'), ('b'), ('c')`,
  `CREATE TABLE notes (tenant_id text DEFAULT NULLIF(current_setting('app.tenant_id', true), ''), body text)`,
  `INSERT INTO notes VALUES ('a', 'a''s own'), ('b', 'b''s own'), ('c', 'c''s own'), (NULL, 'nobody''s')`,
  'ALTER TABLE notes ENABLE ROW LEVEL SECURITY',
  'ALTER TABLE notes FORCE ROW LEVEL SECURITY',
  `CREATE POLICY by_tenant ON notes USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), ''))`,
];
const settingSql = `SELECT current_setting('app.tenant_id', true) AS setting`;

// Row-level security says nothing to superusers, so an ordinary role is needed.
describeWithRoles('a job that runs per tenant', () => {
  const stage = useStage(...notes);
  let role: TestRole | undefined;
  let app: TestApp;
  const listed: unknown[] = [];
  const seen: Record<string, unknown> = {};
  const refused: Record<string, unknown> = {};
  let publisher: EventPublisher;

  async function visit({ tenantId, manager, each }: TenantJobContext): Promise<void> {
    const [{ setting }] = await manager.query(settingSql);
    const rows: { body: string }[] = await manager.query('SELECT body FROM notes ORDER BY body');
    seen[tenantId] = { setting, bodies: rows.map(({ body }) => body) };
    refused[tenantId] = await manager
      .transaction((nested) => nested.query(`INSERT INTO notes VALUES ('b', 'from ${tenantId}')`))
      .then(
        () => 'went through',
        (error) => error.driverError?.code,
      );
    await manager.query(`INSERT INTO notes (body) VALUES ('renewed')`);
    await publisher.publish('test.tenant.noted', { by: tenantId });
    await publisher.publishFor('elsewhere', 'test.tenant.noted', { by: tenantId });
    await each(['x', 'y'], async (row, context) => {
      const [own] = await context.manager.query(settingSql);
      await context.manager.query('INSERT INTO notes (body) VALUES ($1)', [`row ${row} in ${own.setting}`]);
      expect(context.tenantId).toBe(tenantId);
    });
    if (tenantId === 'c') throw new Error('c fails after all that');
  }

  beforeAll(async () => {
    role = await createRole('jobs');
    const owner = await new DataSource({ type: 'postgres', url: stage.database.url }).initialize();
    await outboxSchema.up(owner).finally(() => owner.destroy());
    for (const sql of [`GRANT ALL ON notes, tenants TO ${role.name}`, ...outboxSchema.grants({ worker: role.name })])
      await stage.database.query(sql);
    app = await stage.boot({
      url: role.urlOf(stage.database),
      manifest: { emits: ['test.tenant.noted'] },
      outbox: {
        schema: { onStart: 'verify' },
        tenancy: {
          list: async (manager) => {
            const [{ setting }] = await manager.query(settingSql);
            listed.push({ setting, notes: await manager.query('SELECT body FROM notes') });
            const rows: { id: string }[] = await manager.query('SELECT id FROM tenants ORDER BY id');
            return rows.map(({ id }) => id);
          },
        },
      },
      providers: [job('test.visit', yearly, visit, { perTenant: { concurrency: 2 }, retries: 0 })],
    });
    publisher = app.app.get(EventPublisher);
    await tickNow(stage, app, 'test.visit');
    await overOf(stage, 'test.visit');
  });

  // Hooks run in the order in which they are registered: the database is gone by now.
  afterAll(() => role?.drop());

  it('is in its tenant: the setting, its own rows and nobody else’s, and no others can be written', () => {
    for (const tenant of ['a', 'b', 'c'])
      expect(seen[tenant]).toEqual({ setting: tenant, bodies: [`${tenant}'s own`] });
    expect(refused).toEqual({ a: '42501', b: 'went through', c: '42501' });
  });

  it('commits what it wrote; of the tenant that failed nothing is left but its rows, which are for themselves', async () => {
    const rows = await stage.database.query(
      `SELECT tenant_id, body FROM notes WHERE body NOT LIKE '%own' AND tenant_id IS NOT NULL ORDER BY 1, 2`,
    );
    const rowsOf = (tenant: string) =>
      ['x', 'y'].map((row) => ({ tenant_id: tenant, body: `row ${row} in ${tenant}` }));
    expect(rows).toEqual([
      { tenant_id: 'a', body: 'renewed' },
      ...rowsOf('a'),
      { tenant_id: 'b', body: 'from b' },
      { tenant_id: 'b', body: 'renewed' },
      ...rowsOf('b'),
      ...rowsOf('c'),
    ]);
  });

  it('publishes in its tenant, and together with what it wrote', async () => {
    const events = await stage.database.query(
      `SELECT tenant_id, payload->>'by' AS by FROM outbox.events WHERE type = 'test.tenant.noted' ORDER BY 2, 1`,
    );
    expect(events).toEqual([
      { tenant_id: 'a', by: 'a' },
      { tenant_id: 'elsewhere', by: 'a' },
      { tenant_id: 'b', by: 'b' },
      { tenant_id: 'elsewhere', by: 'b' },
    ]);
    await stage.drained();
  });

  it('asks for the tenants without one', () => {
    expect(listed).toEqual([{ setting: '', notes: [] }]);
  });

  it('has failed, and says for which tenant', async () => {
    expect(await stateOf(stage, 'test.visit')).toMatchObject({
      outcome: 'failed',
      last_error: expect.stringMatching(
        /^AggregateError: job 'test\.visit', slot .*: 1 of 3 tenants failed: tenant 'c': c fails/,
      ),
    });
    expect(await stage.database.query('SELECT * FROM outbox.job_tenants')).toEqual([]);
  });
});

describe('the tenants of a job', () => {
  const stage = useStage();
  const tenants = Array.from({ length: 12 }, (_, n) => `t${n}`);
  const outbox = { tenancy: { list: async () => tenants } };

  it.each([
    [1, {}],
    [5, { concurrency: 5 }],
    [8, { concurrency: 8 }],
  ])('%d at once', async (concurrency, perTenant) => {
    const reached = gate();
    const release = gate();
    let running = 0;
    let most = 0;
    const order: string[] = [];
    const name = `test.at-once-${concurrency}`;
    const run = async ({ tenantId }: TenantJobContext): Promise<void> => {
      order.push(tenantId);
      most = Math.max(most, ++running);
      if (running === concurrency) reached.open();
      await release.passed;
      running -= 1;
    };
    const app = await stage.boot({ outbox, providers: [job(name, yearly, run, { perTenant })] });
    await tickNow(stage, app, name);
    await reached.passed;
    release.open();
    expect(await overOf(stage, name)).toMatchObject({ outcome: 'done' });
    expect(most).toBe(concurrency);
    expect(order.toSorted()).toEqual(tenants.toSorted());
    if (concurrency === 1) expect(order).toEqual(tenants);
    await app.close();
  });

  it('that failed are run again with the slot, and they alone', async () => {
    const runs: string[] = [];
    const run = async ({ tenantId, attempt, isLastAttempt }: TenantJobContext): Promise<void> => {
      runs.push(`${tenantId} ${attempt}${isLastAttempt ? ' last' : ''}`);
      if (['t3', 't7'].includes(tenantId) && attempt < 3) throw new Error(`${tenantId} in attempt ${attempt}`);
      if (tenantId === 't5') throw new Error('always');
    };
    const providers = [job('test.some-fail', yearly, run, { perTenant: {}, retries: 2 })];
    const app = await stage.boot({ outbox, providers });
    await tickNow(stage, app, 'test.some-fail');
    await retryNow(stage, app, 'test.some-fail');
    await eventually('the second attempt', () => runs.filter((one) => one.endsWith(' 2')).length === 3);
    await retryNow(stage, app, 'test.some-fail');
    await overOf(stage, 'test.some-fail');
    expect(runs).toEqual([
      ...tenants.map((tenant) => `${tenant} 1`),
      ...['t3', 't5', 't7'].map((tenant) => `${tenant} 2`),
      ...['t3', 't5', 't7'].map((tenant) => `${tenant} 3 last`),
    ]);
    const told = (await runsOf(stage, 'test.some-fail')).map(({ outcome, error }) => [outcome, error?.split('\n')[0]]);
    expect(told).toEqual([
      [
        'failed',
        expect.stringMatching(
          /3 of 12 tenants failed: tenant 't3': t3 in attempt 1; tenant 't5': always; tenant 't7': t7 in attempt 1$/,
        ),
      ],
      [
        'failed',
        expect.stringMatching(
          /3 of 12 tenants failed: tenant 't3': t3 in attempt 2; tenant 't5': always; tenant 't7': t7 in attempt 2$/,
        ),
      ],
      ['failed', expect.stringMatching(/1 of 12 tenants failed: tenant 't5': always$/)],
    ]);
    expect(await stage.database.query('SELECT tenant FROM outbox.job_tenants')).toEqual([]);
    await app.close();
  });

  it('of a slot that was left unfinished: who has a verdict is not run again, and who failed is told', async () => {
    const runs: string[] = [];
    const run = ({ tenantId, attempt }: TenantJobContext) => void runs.push(`${tenantId} ${attempt}`);
    const providers = () => [job('test.left', yearly, run, { perTenant: { concurrency: 2 }, retries: 1 })];
    const first = await stage.boot({ outbox, providers: providers() });
    await missed(stage, 'test.left');
    await overOf(stage, 'test.left');
    await first.close();
    runs.length = 0;
    // As a process leaves it that dies in the middle.
    await stage.database.query(
      `UPDATE outbox.job_state SET running_slot = last_slot, attempt = 1, worker = NULL, outcome = NULL WHERE job = 'test.left'`,
    );
    await stage.database.query(
      `INSERT INTO outbox.job_tenants (job, slot, part, tenant, error)
       SELECT job, running_slot, 0, tenant, error FROM outbox.job_state,
         (VALUES ('t0', NULL), ('t3', 'Error: no credit card' || chr(10) || '  at somewhere'), ('t4', ''), ('gone', 'no tenant any more')) v (tenant, error)
       WHERE job = 'test.left'`,
    );
    const app = await stage.boot({ outbox, providers: providers() });
    const state = await overOf(stage, 'test.left');
    expect(runs.toSorted()).toEqual(
      tenants
        .filter((tenant) => !['t0', 't3', 't4'].includes(tenant))
        .map((tenant) => `${tenant} 2`)
        .toSorted(),
    );
    expect(state).toMatchObject({ outcome: 'failed', attempt: 2 });
    expect(state.last_error).toContain("2 of 12 tenants failed: tenant 't3': Error: no credit card; tenant 't4': ");
    expect(app.log.matching(/'test\.left': slot .* was left unfinished by attempt 1; .* attempt 2 of 2/)).toHaveLength(
      1,
    );
    expect(await stage.database.query('SELECT tenant FROM outbox.job_tenants')).toEqual([]);
    await app.close();
  });

  it('are not begun once the job is asked to end; who had not failed by himself is run again with the slot', async () => {
    const runs: string[] = [];
    const run = async ({ tenantId, attempt, signal }: TenantJobContext): Promise<void> => {
      runs.push(`${tenantId} ${attempt}`);
      if (tenantId === 't1' && attempt === 1) throw new Error('t1 by itself');
      if (tenantId === 't3' && attempt === 1)
        await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    };
    const providers = [job('test.timeout', yearly, run, { perTenant: {}, timeout: '4s', retries: 1 })];
    const app = await stage.boot({ outbox, providers });
    await tickNow(stage, app, 'test.timeout');
    const failed = await retryNow(stage, app, 'test.timeout');
    await overOf(stage, 'test.timeout');
    expect(runs).toEqual([
      ...['t0', 't1', 't2', 't3'].map((tenant) => `${tenant} 1`),
      ...['t1', ...tenants.slice(3)].map((tenant) => `${tenant} 2`),
    ]);
    expect(failed.last_error).toMatch(
      /2 of 12 tenants failed: tenant 't1': t1 by itself; tenant 't3': job .* has run for 4000 ms.*; 8 not begun: job 'test\.timeout' has run for 4000 ms/,
    );
    expect(await stateOf(stage, 'test.timeout')).toMatchObject({ outcome: 'done', attempt: 2 });
    await app.close();
  });

  it('none at all: nothing is run, and the job is done', async () => {
    let runs = 0;
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => [] } },
      providers: [job('test.nobody', yearly, () => (runs += 1), { perTenant: { concurrency: 3 } })],
    });
    await tickNow(stage, app, 'test.nobody');
    expect(await overOf(stage, 'test.nobody')).toMatchObject({ outcome: 'done' });
    expect(runs).toBe(0);
    await app.close();
  });
});
