import { outboxSchema, SchemaLockedError } from 'nestjs-outbox';
import { DataSource, type DataSourceOptions, type MigrationInterface, type QueryRunner } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import { createDatabase, type TestDatabase } from '../support/test-database.js';

const newest = 4;

class AddOutbox1700000000000 implements MigrationInterface {
  up = (runner: QueryRunner): Promise<void> => outboxSchema.up(runner, { to: 1 });
  down = (runner: QueryRunner): Promise<void> => outboxSchema.down(runner, { to: 0 });
}

class AddVersion1700000000001 implements MigrationInterface {
  up = (runner: QueryRunner): Promise<void> => outboxSchema.up(runner, { to: 2 });
  down = (runner: QueryRunner): Promise<void> => outboxSchema.down(runner, { to: 1 });
}

describe('the schema moves in numbered steps', () => {
  let database: TestDatabase;
  const sources: DataSource[] = [];

  const connect = async (
    options: Partial<Extract<DataSourceOptions, { type: 'postgres' }>> = {},
  ): Promise<DataSource> => {
    const source = new DataSource({ type: 'postgres', url: database.url, ...options });
    sources.push(source);
    return source.initialize();
  };
  const version = async (schema = 'outbox') => {
    const installed = await database.value<boolean>('SELECT to_regclass($1) IS NOT NULL', [`${schema}.schema_version`]);
    return installed ? database.value<number>(`SELECT version FROM ${schema}.schema_version`) : 0;
  };
  /** Everything in a schema, by kind and name. */
  const contents = (schema = 'outbox') =>
    database.query<{ kind: string; name: string }>(
      `SELECT relkind::text AS kind, relname::text AS name FROM pg_class WHERE relnamespace = to_regnamespace($1)
       UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE pronamespace = to_regnamespace($1) ORDER BY 1, 2`,
      [schema],
    );
  const columns = () =>
    database.query(
      `SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
       WHERE c.relnamespace = 'outbox'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2`,
    );
  const exists = (schema = 'outbox') => database.value<boolean>('SELECT to_regnamespace($1) IS NOT NULL', [schema]);

  beforeEach(async () => {
    database = await createDatabase();
  });

  afterEach(async () => {
    for (const source of sources.splice(0)) if (source.isInitialized) await source.destroy();
    const locks = `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
    await eventually('no lock is left', async () => (await database.value<number>(locks)) === 0);
    await database.drop();
  });

  it('up, up again, down, and up once more', async () => {
    const source = await connect();
    await outboxSchema.up(source);
    expect(await version()).toBe(newest);
    const first = await contents();
    expect(first.map((object) => object.name)).toEqual(
      expect.arrayContaining(['events', 'queue', 'deliveries', 'handled', 'events_9', 'dead_letters', 'job_state']),
    );
    const installed = await database.value<Date>('SELECT installed_at FROM outbox.schema_version');

    await outboxSchema.up(source);
    expect(await contents()).toEqual(first);
    expect(await database.value('SELECT installed_at FROM outbox.schema_version')).toEqual(installed);
    expect(await database.value('SELECT count(*)::int FROM outbox.schema_version')).toBe(1);

    await outboxSchema.down(source);
    expect(await exists()).toBe(false);
    await outboxSchema.down(source);

    await outboxSchema.up(source, { to: newest });
    expect(await version()).toBe(newest);
    expect(await contents()).toEqual(first);
    // Asking for what is there, or less, undoes nothing.
    await outboxSchema.up(source, { to: 0 });
    expect(await contents()).toEqual(first);
  });

  it('each step up and down, with data in place', async () => {
    const source = await connect();
    await outboxSchema.up(source, { to: 1 });
    expect(await version()).toBe(1);
    const first = await contents();
    await database.query(
      `INSERT INTO outbox.events (bucket, id, type, payload) SELECT outbox.bucket(id), id, 'a.b.c', '{"n":1}' FROM (SELECT outbox.uuid7(now()) AS id FROM generate_series(1, 50)) x;
       INSERT INTO outbox.queue (event_id) SELECT id FROM outbox.events;
       INSERT INTO outbox.handled (bucket, event_id, durable, verdict) SELECT bucket, id, 1, 'd' FROM outbox.events;
       INSERT INTO outbox.deliveries (event_id, durable, due_at) SELECT id, 2, now() FROM outbox.events;
       INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at, resolved_at) SELECT id, 'ledger', type, payload, now(), now() FROM outbox.events`,
    );
    const rows = async () =>
      Promise.all(
        ['events', 'queue', 'handled', 'deliveries', 'dead_letters'].map((table) =>
          database.query(`SELECT to_jsonb(t) AS row FROM outbox.${table} t ORDER BY 1`),
        ),
      );
    const before = await rows();
    for (let round = 0; round < 2; round++) {
      await outboxSchema.up(source, { to: 2 });
      expect(await version()).toBe(2);
      expect(await rows()).toEqual(before);
      await database.query(
        `INSERT INTO outbox.job_state (job, schedule) VALUES ('a', '* * * * *'); INSERT INTO outbox.job_runs (job, slot, attempt) VALUES ('a', now(), 1)`,
      );
      await outboxSchema.down(source, { to: 1 });
      expect(await version()).toBe(1);
      expect(await contents()).toEqual(first);
      expect(await rows()).toEqual(before);
    }
    await outboxSchema.up(source, { to: 2 });
    await outboxSchema.down(source);
    expect(await exists()).toBe(false);
  });

  it('version 3 adds columns to what is there, gives the outbox an id of its own, and takes both away again', async () => {
    const source = await connect();
    await outboxSchema.up(source, { to: 2 });
    await database.query(`INSERT INTO outbox.durables (name) VALUES ('ledger')`);
    const seen = () => Promise.all([contents(), columns(), database.query('SELECT * FROM outbox.durables')]);
    const before = await seen();
    const ids = new Set<string>();
    for (let round = 0; round < 2; round++) {
      await outboxSchema.up(source, { to: 3 });
      expect(await version()).toBe(3);
      ids.add(await database.value<string>('SELECT installation::text FROM outbox.schema_version'));
      // No broker serves what was there before.
      expect(await database.value('SELECT verified_to FROM outbox.durables')).toBeNull();
      await outboxSchema.down(source, { to: 2 });
      expect(await version()).toBe(2);
      expect(await seen()).toEqual(before);
    }
    expect(ids.size).toBe(2);
  });

  it('a step says how old a library may be to run on it: 2 and 3 take one that knows version 1 alone', async () => {
    const source = await connect();
    const minLibrary = () => database.value<number>('SELECT min_library FROM outbox.schema_version');
    await outboxSchema.up(source, { to: 1 });
    expect(await minLibrary()).toBe(1);
    for (const to of [2, 3]) {
      await outboxSchema.up(source, { to });
      expect(await minLibrary()).toBe(1);
    }
  });

  it('down leaves alone what is not its own', async () => {
    const source = await connect();
    await database.query('CREATE SCHEMA outbox; CREATE TABLE outbox.mine (id int); INSERT INTO outbox.mine VALUES (7)');
    await outboxSchema.up(source);
    await database.query('CREATE VIEW outbox.own_view AS SELECT id FROM outbox.mine');
    await outboxSchema.down(source);
    expect(await contents()).toEqual([
      { kind: 'r', name: 'mine' },
      { kind: 'v', name: 'own_view' },
    ]);
    await outboxSchema.up(source);
    expect(await version()).toBe(newest);
    expect(await database.value('SELECT id FROM outbox.mine')).toBe(7);
  });

  it('down refuses to take what depends on it, and changes nothing then', async () => {
    const source = await connect();
    await outboxSchema.up(source);
    const before = await contents();
    await database.query('CREATE VIEW public.report AS SELECT id, type FROM outbox.events');
    await expect(outboxSchema.down(source)).rejects.toMatchObject({ driverError: { code: '2BP01' } });
    expect(await contents()).toEqual(before);
    expect(await version()).toBe(newest);
  });

  it.each(['all', 'each'] as const)('from a TypeORM migration, with transaction: %s', async (transaction) => {
    const source = await connect({ migrations: [AddOutbox1700000000000, AddVersion1700000000001] });
    await source.runMigrations({ transaction });
    expect(await version()).toBe(2);
    await source.runMigrations({ transaction });
    await source.undoLastMigration({ transaction });
    expect(await version()).toBe(1);
    await source.undoLastMigration({ transaction });
    expect(await exists()).toBe(false);
    await source.runMigrations({ transaction: 'none' });
    expect(await version()).toBe(2);
  });

  it("inside the caller's transaction it is undone with it, and the caller's lock_timeout is as before", async () => {
    const source = await connect();
    const runner = source.createQueryRunner();
    await runner.startTransaction();
    await runner.query(`SET LOCAL lock_timeout = '777ms'`);
    await outboxSchema.up(runner);
    expect(await runner.query('SHOW lock_timeout')).toEqual([{ lock_timeout: '777ms' }]);
    expect(await runner.query('SELECT version FROM outbox.schema_version')).toEqual([{ version: newest }]);
    await runner.rollbackTransaction();
    await runner.release();
    expect(await exists()).toBe(false);
    await outboxSchema.up(source);
    expect(await source.query('SHOW lock_timeout')).toEqual([{ lock_timeout: '0' }]);
  });

  it('two deploys at the same time, and eight', async () => {
    const eight = await Promise.all(Array.from({ length: 8 }, () => connect({ poolSize: 1 })));
    await Promise.all(eight.slice(0, 2).map((source) => outboxSchema.up(source)));
    expect(await version()).toBe(newest);
    await Promise.all(eight.map((source) => outboxSchema.down(source)));
    expect(await exists()).toBe(false);
    await Promise.all(eight.map((source) => outboxSchema.up(source)));
    expect(await version()).toBe(newest);
    expect(await database.value('SELECT count(*)::int FROM outbox.schema_version')).toBe(1);
  });

  it('a version that does not exist and a name that cannot be used are refused by name', async () => {
    const source = await connect();
    await expect(outboxSchema.up(source, { to: newest + 1 })).rejects.toMatchObject({
      code: 'OUTBOX_SCHEMA',
      message: expect.stringMatching(/no outbox schema version 5; this library knows 0 \(none\) to 4/),
    });
    await expect(outboxSchema.down(source, { to: -1 })).rejects.toMatchObject({ code: 'OUTBOX_SCHEMA' });
    await expect(outboxSchema.up(source, { to: 0.5 })).rejects.toMatchObject({ code: 'OUTBOX_SCHEMA' });
    for (const schema of [
      'Outbox',
      'out box',
      'o"; DROP SCHEMA public; --',
      '',
      'x'.repeat(41),
      'public',
      'pg_outbox',
      'information_schema',
    ])
      await expect(outboxSchema.up(source, { schema })).rejects.toMatchObject({ code: 'OUTBOX_SCHEMA' });
    expect(await database.value(`SELECT count(*)::int FROM pg_namespace WHERE nspname LIKE '%out%'`)).toBe(0);
  });

  describe('while others hold locks', () => {
    /** The library's session is held up by a lock; resolves to when its present statement began. */
    const waiting = (after = '-infinity') =>
      eventually('it waits for a lock', () =>
        database.value<string | undefined>(
          `SELECT query_start::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start > $1::timestamptz`,
          [after],
        ),
      );

    it('up tries again, and passes when they are gone', async () => {
      const source = await connect();
      const holder = (await connect()).createQueryRunner();
      await holder.startTransaction();
      await holder.query('CREATE SCHEMA outbox');
      const moving = outboxSchema.up(source);
      // The second wait is that of a second try: the first gave way, so that nobody queues behind it for long.
      await waiting(await waiting());
      await holder.rollbackTransaction();
      await holder.release();
      await moving;
      expect(await version()).toBe(newest);
    });

    it("a try that gave way leaves the caller's transaction usable", async () => {
      const holder = (await connect()).createQueryRunner();
      const runner = (await connect()).createQueryRunner();
      await holder.startTransaction();
      await holder.query('CREATE SCHEMA outbox');
      await runner.startTransaction();
      await runner.query('CREATE TABLE public.same_migration (id int)');
      const moving = outboxSchema.up(runner);
      await waiting(await waiting());
      await holder.rollbackTransaction();
      await holder.release();
      await moving;
      await runner.commitTransaction();
      await runner.release();
      expect(await version()).toBe(newest);
      expect(await database.value(`SELECT to_regclass('public.same_migration') IS NOT NULL`)).toBe(true);
    });

    // Ten tries of two seconds, and the pauses between them: half a minute that no option shortens.
    it('and gives up in the end, by name, with nothing changed', async () => {
      const source = await connect();
      await outboxSchema.up(source);
      const before = await contents();
      const holder = (await connect()).createQueryRunner();
      await holder.startTransaction();
      await holder.query('SELECT count(*) FROM outbox.events');
      const error = await outboxSchema.down(source).then(
        () => undefined,
        (reason) => reason,
      );
      expect(error).toBeInstanceOf(SchemaLockedError);
      expect(error).toMatchObject({
        code: 'OUTBOX_SCHEMA_LOCKED',
        retryable: true,
        cause: { driverError: { code: '55P03' } },
      });
      expect(await contents()).toEqual(before);
      await holder.rollbackTransaction();
      await holder.release();
      await outboxSchema.down(source);
      expect(await exists()).toBe(false);
    });
  });
});

describe('two outboxes in one database, in one process', () => {
  const stage = useStage();
  const event = 'billing.invoice.paid';

  it('do not meet: each has its schema, its events, its workers and its locks', async () => {
    const bootOn = (schema: string) =>
      stage.boot({
        providers: [subscriber(event, 'ledger', (given, context) => effect(given, context, '', schema))],
        manifest: { emits: [event] },
        outbox: { schema: { name: schema, onStart: 'migrate' }, relay: { poll: '50ms' } },
      });
    const [one, two] = await Promise.all([bootOn('outbox_one'), bootOn('outbox_two')]);
    const list = Array.from({ length: 30 }, (_, i) => ({ event, payload: { i } }));
    const inOne = await one.dataSource.transaction(() => one.publisher.publishMany(list));
    const inTwo = await two.dataSource.transaction(() => two.publisher.publishMany(list.slice(0, 20)));
    // A transaction of the one is none of the other's.
    await expect(one.dataSource.transaction(() => two.publisher.publish(event, {}))).rejects.toMatchObject({
      code: 'OUTBOX_NOT_IN_TRANSACTION',
    });
    // One with both, when it is said so.
    await one.dataSource.transaction(async (manager) => {
      await one.publisher.publish(event, {});
      await two.publisher.with(manager).publish(event, {});
    });
    await eventually('both have handled theirs', () =>
      stage.database.value<boolean>(
        `SELECT (SELECT count(*) FROM effects WHERE app = 'outbox_one') = 31 AND (SELECT count(*) FROM effects WHERE app = 'outbox_two') = 21`,
      ),
    );
    for (const [app, published] of [
      ['outbox_one', inOne],
      ['outbox_two', inTwo],
    ] as const) {
      const ids = published.map((p) => p.id);
      expect(await stage.database.query('SELECT DISTINCT app FROM effects WHERE event_id = ANY ($1)', [ids])).toEqual([
        { app },
      ]);
    }
    // Neither sweeps the other's worker: both live on, each alone in its schema.
    for (const schema of ['outbox_one', 'outbox_two'])
      expect(await stage.database.value(`SELECT count(*)::int FROM ${schema}.workers`)).toBe(1);
    expect(await stage.database.value(`SELECT to_regnamespace('outbox') IS NULL`)).toBe(true);
    await one.close();
    const { id } = await two.publisher.publishNow(event, {});
    await eventually('the other goes on', () =>
      stage.database.value<number>('SELECT count(*)::int FROM effects WHERE event_id = $1', [id]),
    );
  });
});
