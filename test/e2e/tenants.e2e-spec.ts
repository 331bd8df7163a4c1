import { AsyncLocalStorage } from 'node:async_hooks';
import { outboxSchema } from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { nothingIsLeft, subscriber } from '../support/stage.js';
import { bootApp, type TestApp } from '../support/test-app.js';
import { createDatabase, type TestDatabase } from '../support/test-database.js';
import { createRole, describeWithRoles, type TestRole } from '../support/test-role.js';

interface Seen {
  readonly eventId: string;
  readonly event: string | null;
  readonly context: string | null;
  readonly setting: string;
  readonly bodies: string[];
}

const emits = ['test.note.asked', 'test.theft.tried', 'test.chain.begun', 'test.chain.went-on', 'test.setting.left'];

// Row-level security says nothing to superusers, so an ordinary role is needed.
describeWithRoles("a handler runs in its event's tenant", () => {
  const request = new AsyncLocalStorage<string>();
  const seen: Seen[] = [];
  const thefts: Record<string, string> = {};
  let role: TestRole | undefined;
  let database: TestDatabase | undefined;
  let app: TestApp;

  const db = (): TestDatabase => {
    if (!database) throw new Error('the database is there from beforeAll on');
    return database;
  };

  beforeAll(async () => {
    role = await createRole('tenants');
    database = await createDatabase();
    const owner = new DataSource({ type: 'postgres', url: database.url });
    await owner.initialize();
    await outboxSchema.up(owner);
    await owner.destroy();
    for (const sql of [
      `CREATE TABLE notes (tenant_id text DEFAULT NULLIF(current_setting('app.tenant_id', true), ''), body text)`,
      `INSERT INTO notes VALUES ('a', 'a''s own'), ('b', 'b''s own'), (NULL, 'nobody''s')`,
      'ALTER TABLE notes ENABLE ROW LEVEL SECURITY',
      'ALTER TABLE notes FORCE ROW LEVEL SECURITY',
      `CREATE POLICY by_tenant ON notes USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), ''))`,
      `GRANT ALL ON notes TO ${role.name}`,
      ...outboxSchema.grants({ worker: role.name }),
    ])
      await database.query(sql);
    app = await bootApp({
      url: role.urlOf(database),
      providers: [
        subscriber('test.note.asked', 'notes', async (event, context) => {
          const [{ setting }] = await context.manager.query(`SELECT current_setting('app.tenant_id', true) AS setting`);
          const rows: { body: string }[] = await context.manager.query('SELECT body FROM notes ORDER BY body');
          const bodies = rows.map((row) => row.body);
          seen.push({ eventId: event.id, event: event.tenantId, context: context.tenantId, setting, bodies });
        }),
        subscriber<{ name: string; sql: string }>('test.theft.tried', 'thief', async (event, context) => {
          const { name, sql } = event.payload;
          thefts[name] = await context.manager
            .transaction((nested) => nested.query(sql))
            .then(
              (result) => JSON.stringify(result),
              (error) => error.driverError?.code ?? String(error),
            );
        }),
        subscriber('test.setting.left', 'litter', (_event, context) =>
          // For the session, not for the transaction: what a careless helper does.
          context.manager.query(`SELECT set_config('app.tenant_id', 'b', false)`),
        ),
        subscriber('test.chain.begun', 'chain', async () => {
          await app.publisher.publish('test.chain.went-on', { how: 'publish' });
          await app.publisher.publish('test.chain.went-on', { how: 'delayed' }, { delay: '1h' });
          await app.publisher.publishMany([
            { event: 'test.chain.went-on', payload: { how: 'many' } },
            { event: 'test.chain.went-on', payload: { how: 'many, explicit' }, tenantId: 'c' },
          ]);
          await app.publisher.publishFor('b', 'test.chain.went-on', { how: 'for' });
        }),
      ],
      manifest: { emits },
      outbox: {
        schema: { onStart: 'verify' },
        relay: { poll: '50ms' },
        tenancy: { current: () => request.getStore() },
      },
      typeorm: { poolSize: 3 },
    });
  });

  afterAll(async () => {
    await app?.close();
    try {
      if (database) await nothingIsLeft(database);
    } finally {
      await database?.drop();
      await role?.drop();
    }
  });

  const publishFor = async (tenant: string | null, type: string, payload: unknown) =>
    (await app.publisher.publishNow(type, payload, tenant === null ? {} : { tenantId: tenant })).id;
  const handled = (id: string) =>
    eventually(`${id} is handled`, () =>
      db().value<number>(`SELECT count(*)::int FROM outbox.handled WHERE event_id = $1 AND verdict = 'd'`, [id]),
    );
  const tenantsOf = async (how: string) => {
    const rows = await db().query<{ tenant_id: string | null }>(
      `SELECT tenant_id FROM outbox.events WHERE type = 'test.chain.went-on' AND payload->>'how' = $1`,
      [how],
    );
    return rows.map((row) => row.tenant_id);
  };

  it('it sees its own rows and those of nobody else; without a tenant it sees none', async () => {
    const ids = [];
    for (let i = 0; i < 60; i++) ids.push(await publishFor(['a', 'b', null][i % 3] ?? null, 'test.note.asked', { i }));
    await Promise.all(ids.map(handled));
    expect(seen).toHaveLength(60);
    for (const [i, id] of ids.entries()) {
      const tenant = ['a', 'b', null][i % 3] ?? null;
      const own = { event: tenant, context: tenant, setting: tenant ?? '', bodies: tenant ? [`${tenant}'s own`] : [] };
      expect(seen.find((s) => s.eventId === id)).toEqual({ eventId: id, ...own });
    }
  });

  it('it cannot write, change or delete what belongs to another', async () => {
    const tries = {
      insert: `INSERT INTO notes VALUES ('b', 'from a')`,
      'insert for nobody': `INSERT INTO notes VALUES (NULL, 'from a')`,
      'move away': `UPDATE notes SET tenant_id = 'b'`,
      update: `WITH u AS (UPDATE notes SET body = 'stolen' WHERE tenant_id <> 'a' RETURNING 1) SELECT count(*)::int AS n FROM u`,
      delete: `WITH d AS (DELETE FROM notes WHERE tenant_id IS DISTINCT FROM 'a' RETURNING 1) SELECT count(*)::int AS n FROM d`,
      'own insert': `INSERT INTO notes (body) VALUES ('a''s second') RETURNING tenant_id`,
    };
    for (const [name, sql] of Object.entries(tries))
      await handled(await publishFor('a', 'test.theft.tried', { name, sql }));
    const refused = '42501';
    expect(thefts).toEqual({
      insert: refused,
      'insert for nobody': refused,
      'move away': refused,
      update: '[{"n":0}]',
      delete: '[{"n":0}]',
      'own insert': '[{"tenant_id":"a"}]',
    });
    expect(
      await db().query(`SELECT tenant_id, body FROM notes WHERE tenant_id IS DISTINCT FROM 'a' ORDER BY body`),
    ).toEqual([
      { tenant_id: 'b', body: "b's own" },
      { tenant_id: null, body: "nobody's" },
    ]);
  });

  it('nothing of a tenant stays on a connection of the pool', async () => {
    await handled(await publishFor('a', 'test.note.asked', {}));
    const outside = await Promise.all(
      Array.from({ length: 9 }, () =>
        app.dataSource.query(
          `SELECT NULLIF(current_setting('app.tenant_id', true), '') AS tenant, (SELECT count(*)::int FROM notes) AS n`,
        ),
      ),
    );
    for (const [row] of outside) expect(row).toEqual({ tenant: null, n: 0 });
  });

  it('and what somebody left there does not reach a handler', async () => {
    await handled(await publishFor('a', 'test.setting.left', {}));
    // The application leaves its own on every connection, too.
    await Promise.all(
      Array.from({ length: 9 }, () => app.dataSource.query(`SELECT set_config('app.tenant_id', 'b', false)`)),
    );
    try {
      for (const tenant of ['a', null]) {
        const id = (
          await app.dataSource.transaction(async (manager) => {
            await manager.query(`SELECT set_config('app.tenant_id', '', true)`);
            return tenant
              ? app.publisher.publishFor(tenant, 'test.note.asked', {})
              : app.publisher.publish('test.note.asked', {});
          })
        ).id;
        await handled(id);
        expect(seen.find((s) => s.eventId === id)).toMatchObject({
          event: tenant,
          context: tenant,
          setting: tenant ?? '',
        });
        expect(seen.find((s) => s.eventId === id)?.bodies).not.toContain("b's own");
      }
    } finally {
      await Promise.all(
        Array.from({ length: 9 }, () => app.dataSource.query(`SELECT set_config('app.tenant_id', '', false)`)),
      );
    }
  });

  it("what is published inside a handler is its tenant's, unless another is named", async () => {
    await handled(await publishFor('a', 'test.chain.begun', {}));
    expect(await tenantsOf('publish')).toEqual(['a']);
    expect(await tenantsOf('delayed')).toEqual(['a']);
    expect(await tenantsOf('many')).toEqual(['a']);
    expect(await tenantsOf('many, explicit')).toEqual(['c']);
    expect(await tenantsOf('for')).toEqual(['b']);
    await handled(await publishFor(null, 'test.chain.begun', {}));
    expect((await tenantsOf('publish')).toSorted()).toEqual(['a', null]);
  });

  it('outside a handler the tenant is the one that tenancy.current names, or the one of the connection', async () => {
    const tenantOf = (id: string) => db().value('SELECT tenant_id FROM outbox.events WHERE id = $1', [id]);
    const inRequest = await request.run('a', () => app.publisher.publishNow('test.note.asked', {}));
    expect(await tenantOf(inRequest.id)).toBe('a');
    const explicit = await request.run('a', () => app.publisher.publishNow('test.note.asked', {}, { tenantId: 'b' }));
    expect(await tenantOf(explicit.id)).toBe('b');
    const onConnection = await app.dataSource.transaction(async (manager) => {
      await manager.query(`SELECT set_config('app.tenant_id', 'c', true)`);
      return app.publisher.publish('test.note.asked', {});
    });
    expect(await tenantOf(onConnection.id)).toBe('c');
    const nobody = await app.publisher.publishNow('test.note.asked', {});
    expect(await tenantOf(nobody.id)).toBeNull();
    await Promise.all([inRequest, explicit, onConnection, nobody].map(({ id }) => handled(id)));
  });
});
