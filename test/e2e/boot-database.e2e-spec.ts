import type { DynamicModule } from '@nestjs/common';
import { getDataSourceToken } from '@nestjs/typeorm';
import { Durables, memory, type OutboxBootError, outboxSchema } from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { itOfRows } from '../support/of-rows.js';
import { subscriber, useStage } from '../support/stage.js';
import type { TestApp, TestAppOptions } from '../support/test-app.js';
import { createDatabase } from '../support/test-database.js';
import { createRole, describeWithRoles, type TestRole } from '../support/test-role.js';

const event = 'billing.invoice.paid';
const manifest = { emits: [event] };
const nothing = () => {};
const verify = { schema: { onStart: 'verify' as const } };

describeWithRoles('the gate asks the database', () => {
  const stage = useStage();
  let role: TestRole | undefined;
  let worker = '';
  let asWorker = '';

  beforeAll(async () => {
    const source = await new DataSource({ type: 'postgres', url: stage.database.url }).initialize();
    await outboxSchema.up(source);
    await source.destroy();
    role = await createRole('gate');
    worker = role.name;
    asWorker = role.urlOf(stage.database);
    for (const sql of outboxSchema.grants({ worker })) await stage.database.query(sql);
  });

  // Runs after the stage's own hook: with the database its grants are gone.
  afterAll(() => role?.drop());

  async function refused(options: Parameters<typeof stage.boot>[0]): Promise<OutboxBootError['problems']> {
    const error: OutboxBootError = await stage.boot({ manifest, ...options }).then(
      () => Promise.reject(new Error('it booted')),
      (reason) => reason,
    );
    expect(error).toMatchObject({ code: 'OUTBOX_BOOT' });
    return error.problems;
  }

  /** Boots, and returns the warnings in its log. */
  async function warnings(options: Omit<TestAppOptions, 'url'> & { url?: string }): Promise<string[]> {
    const app: TestApp = await stage.boot({ manifest, ...options });
    await app.close();
    return app.log.matching(/^warn/);
  }

  it('and says nothing when everything is in order', async () => {
    expect(await warnings({ url: asWorker, outbox: { ...verify, tenancy: {} } })).toEqual([]);
  });

  /** A DataSource that the app made by itself, under the name 'given'. */
  function given(value: DataSource): DynamicModule {
    const provider = { provide: getDataSourceToken('given'), useValue: value };
    return { module: class GivenModule {}, global: true, providers: [provider], exports: [provider] };
  }

  it('not, when the DataSource is of another type', async () => {
    expect(
      await refused({
        imports: [given(new DataSource({ type: 'cockroachdb', url: stage.database.url, timeTravelQueries: false }))],
        outbox: { dataSource: 'given' },
      }),
    ).toEqual([
      {
        check: 'dataSource',
        message: expect.stringMatching(/of type 'cockroachdb'.*give it one of type 'postgres'.*dataSource: '…'/),
      },
    ]);
  });

  it('not, when the DataSource is not initialized', async () => {
    expect(
      await refused({
        imports: [given(new DataSource({ type: 'postgres', url: stage.database.url }))],
        outbox: { dataSource: 'given' },
      }),
    ).toEqual([
      { check: 'dataSource', message: expect.stringMatching(/not initialized; leave out manualInitialization/) },
    ]);
  });

  it.each(['worker', 'publisher'] as const)('not, when memory() is given to role %s', async (role) => {
    expect(await refused({ outbox: { role, transport: memory() } })).toEqual([
      {
        check: 'transport',
        message: expect.stringMatching(
          new RegExp(`memory\\(\\) is for exactly one process.*role is '${role}'.*use role 'all', or postgres\\(\\)`),
        ),
      },
    ]);
  });

  it('for the rights of its role: each that is missing, with its GRANT', async () => {
    await stage.database.query(`REVOKE DELETE ON outbox.queue FROM ${worker}`);
    await stage.database.query(
      `REVOKE INSERT, UPDATE ON ${Array.from({ length: 10 }, (_, b) => `outbox.handled_${b}`).join(', ')} FROM ${worker}`,
    );
    await stage.database.query('REVOKE EXECUTE ON FUNCTION outbox.uuid7(timestamptz) FROM PUBLIC');
    await stage.database.query(`REVOKE EXECUTE ON FUNCTION outbox.uuid7(timestamptz) FROM ${worker}`);
    await stage.database.query(`REVOKE USAGE ON SEQUENCE outbox.workers_id_seq FROM ${worker}`);
    const found = await refused({ url: asWorker, outbox: verify });
    const says = [
      `lacks EXECUTE on FUNCTION outbox.uuid7, outbox.uuid7_floor, outbox.bucket, which a worker needs`,
      `lacks INSERT, UPDATE on outbox.handled_0 to outbox.handled_9, which`,
      `lacks DELETE on outbox.queue, which a worker needs; let the owner of the schema run: GRANT DELETE ON outbox.queue TO "${worker}"`,
      `lacks USAGE on SEQUENCE outbox.workers_id_seq`,
    ];
    expect(found.map(({ check }) => check)).toEqual(says.map(() => 'privileges'));
    for (const [i, text] of says.entries()) expect(found[i]?.message).toContain(text);
    for (const { message } of found) {
      expect(message).toContain(`outboxSchema.grants({ worker: '${worker}' })`);
      // The remedy that was printed is the remedy.
      await stage.database.query(/run: (GRANT .*?) \(everything/.exec(message)?.[1] ?? 'no GRANT in the message');
    }
    await (await stage.boot({ url: asWorker, manifest, outbox: verify })).close();
  });

  it('for the right to look at all', async () => {
    await stage.database.query(`REVOKE USAGE ON SCHEMA outbox FROM ${worker}`);
    const [problem, ...more] = await refused({ url: asWorker, outbox: verify });
    expect(more).toEqual([]);
    expect(problem).toMatchObject({
      check: 'privileges',
      message: expect.stringContaining(`outboxSchema.grants({ worker: '${worker}' })`),
    });
    await stage.database.query(`GRANT USAGE ON SCHEMA outbox TO ${worker}`);
  });

  it('for the rights of a role that is to install the schema', async () => {
    const [problem] = await refused({
      url: asWorker,
      outbox: { schema: { name: 'another', onStart: 'migrate' } },
    });
    expect(problem).toMatchObject({
      check: 'schema',
      message: expect.stringMatching(/onStart is 'migrate', but .*may not change the outbox schema 'another'.*owner/),
    });
  });

  it('for row-level security on its own tables, unless a policy lets the role see everything', async () => {
    for (const table of ['queue', 'events'])
      await stage.database.query(`ALTER TABLE outbox.${table} ENABLE ROW LEVEL SECURITY`);
    const [problem, ...more] = await refused({ url: asWorker, outbox: verify });
    expect(more).toEqual([]);
    expect(problem).toMatchObject({
      check: 'row-security',
      message: expect.stringMatching(
        /on outbox\.events, outbox\.queue may hide rows from role .*ALTER TABLE outbox\.events DISABLE ROW LEVEL SECURITY; ALTER TABLE outbox\.queue DISABLE/,
      ),
    });
    await stage.database.query(`CREATE POLICY everything ON outbox.queue TO ${worker} USING (true)`);
    const [fewer] = await refused({ url: asWorker, outbox: verify });
    expect(fewer?.message).toMatch(/on outbox\.events may hide/);
    await stage.database.query('CREATE POLICY everything ON outbox.events USING (true)');
    await (await stage.boot({ url: asWorker, manifest, outbox: verify })).close();
    // One that narrows makes it doubtful again.
    await stage.database.query('CREATE POLICY narrow ON outbox.events AS RESTRICTIVE USING (tenant_id IS NULL)');
    expect(await refused({ url: asWorker, outbox: verify })).toHaveLength(1);
    for (const table of ['queue', 'events']) {
      await stage.database.query(`ALTER TABLE outbox.${table} DISABLE ROW LEVEL SECURITY`);
    }
  });

  it('whether infrastructure.url leads to the same database', async () => {
    const other = await createDatabase();
    const [problem, ...more] = await refused({ outbox: { infrastructure: { url: other.url } } });
    await other.drop();
    expect(more).toEqual([]);
    expect(problem).toMatchObject({
      check: 'infrastructure',
      message: expect.stringMatching(/leads to another database than the DataSource/),
    });
    await (await stage.boot({ manifest, outbox: { infrastructure: { url: stage.database.url } } })).close();
    // Its role needs the same rights.
    const direct = await createRole('direct');
    const url = direct.urlOf(stage.database);
    const found = await refused({ outbox: { ...verify, infrastructure: { url } } });
    await direct.drop();
    expect(found.length).toBeGreaterThan(5);
    expect(new Set(found.map(({ check }) => check))).toEqual(new Set(['privileges']));
    expect(found[0]?.message).toContain(`role "${direct.name}" lacks`);
  });

  itOfRows('and warns of durables that no handler of the app has, with what waits', async () => {
    const first = await stage.boot({ manifest, providers: [subscriber(event, 'former', nothing)] });
    await first.close();
    const publisher = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    for (let i = 0; i < 3; i++) await publisher.publisher.publishNow(event, { i });
    await publisher.close();
    const relay = await stage.boot({ manifest, providers: [subscriber(event, 'present', nothing)] });
    expect(
      relay.log.matching(/^warn durable 'former' .* no handler of this app has it; .* wait for it: 0, and/),
    ).toHaveLength(1);
    await eventually('the three are fanned out', () =>
      stage.database.value<boolean>('SELECT count(*) = 3 FROM outbox.deliveries WHERE lease IS NULL'),
    );
    await relay.close();
    const lines = await warnings({ providers: [subscriber(event, 'present', nothing)] });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/'former' .* wait for it: 3, and.*was removed, end it.*durables\.retire\('former'\)/);
    // What it says to do, done; its last worker is gone for long enough.
    await stage.database.query(`UPDATE outbox.durables SET seen_at = now() - interval '1 hour' WHERE name = 'former'`);
    const operator = await stage.boot({ manifest: { emits: [event] }, outbox: { role: 'publisher' } });
    await operator.app.get(Durables).retire('former');
    await operator.close();
    expect(await warnings({ providers: [subscriber(event, 'present', nothing)] })).toEqual([]);
    // And when its code comes back, nobody is left to wonder.
    const [back] = await warnings({
      providers: [subscriber(event, 'present', nothing), subscriber(event, 'former', nothing)],
    });
    expect(back).toMatch(
      /durable 'former' has a handler in this app but is 'retired' in the database.*durables\.revive\('former'\)/,
    );
    await stage.database.query('TRUNCATE outbox.durables, outbox.durable_types, outbox.deliveries, outbox.queue');
  });

  it('and warns of a clock that is far from the database’s', async () => {
    const now = Date.now;
    const off = (by: number) => jest.spyOn(Date, 'now').mockImplementation(() => now() + by);
    try {
      off(95_000);
      expect(await warnings({})).toEqual([
        expect.stringMatching(/clock is 9[45] s ahead of the database's.*runAt.*NTP/),
      ]);
      off(-95_000);
      expect(await warnings({ outbox: { role: 'publisher' } })).toEqual([
        expect.stringMatching(/clock is 9[456] s behind/),
      ]);
      off(20_000);
      expect(await warnings({})).toEqual([]);
    } finally {
      jest.restoreAllMocks();
    }
  });

  it('and warns when policies about the tenant do not hold for its role', async () => {
    const superuser = /role '\w+' bypasses row-level security \(it is a superuser\)/;
    expect(await warnings({ outbox: { tenancy: { current: () => 'a' } } })).toEqual([expect.stringMatching(superuser)]);
    expect(await warnings({})).toEqual([]);
    await stage.database.query('CREATE TABLE bills (tenant_id text)');
    await stage.database.query('ALTER TABLE bills ENABLE ROW LEVEL SECURITY');
    await stage.database.query(
      `CREATE POLICY tenants ON bills USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), ''))`,
    );
    expect(await warnings({})).toEqual([expect.stringMatching(/superuser\): the policies of bills do not hold/)]);
    const bound = { url: asWorker, outbox: { ...verify, tenancy: {} } };
    expect(await warnings(bound)).toEqual([]);
    await stage.database.query(`ALTER TABLE bills OWNER TO ${worker}`);
    expect(await warnings(bound)).toEqual([
      expect.stringMatching(/owns what.*ALTER TABLE bills FORCE ROW LEVEL SECURITY/),
    ]);
    await stage.database.query('ALTER TABLE bills FORCE ROW LEVEL SECURITY');
    expect(await warnings(bound)).toEqual([]);
    await stage.database.query(`ALTER ROLE ${worker} BYPASSRLS`);
    expect(await warnings(bound)).toEqual([expect.stringMatching(/it has BYPASSRLS/)]);
    await stage.database.query(`ALTER ROLE ${worker} NOBYPASSRLS`);
    await stage.database.query('DROP TABLE bills');
  });
});
