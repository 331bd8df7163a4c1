import { DataSource } from 'typeorm';
import { explain, wholeReads } from '../../../../test/support/explain.js';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import { Database } from './database.js';
import { healthParts } from './health.table.js';
import type { InfrastructureConnection } from './infrastructure-connection.js';
import { outboxSchema } from './schema/outbox-schema.js';
import { statement } from './wire/statement.js';

const log = { log: () => {}, warn: () => {}, error: () => {} };
const rows = 100_000;

describe(`the statements of health over ${rows.toLocaleString('en')} rows that wait`, () => {
  let store: TestDatabase;
  let source: DataSource;
  let database: Database;
  let connection: InfrastructureConnection;

  beforeAll(async () => {
    store = await createDatabase();
    source = await new DataSource({ type: 'postgres', url: store.url }).initialize();
    await outboxSchema.up(source);
    database = new Database(source, 'outbox');
    connection = database.infrastructure('test', log);
    const many = `generate_series(1, ${rows}) n`;
    for (const sql of [
      `INSERT INTO outbox.durables (name) SELECT 'd' || n FROM generate_series(1, 4) n`,
      `INSERT INTO outbox.queue (event_id, due_at) SELECT gen_random_uuid(), now() - n * interval '1 ms' FROM ${many}`,
      `INSERT INTO outbox.scheduled (id, due_at, type, payload) SELECT gen_random_uuid(), now() + n * interval '1 day', 'a.b.c', '{}' FROM ${many}`,
      `INSERT INTO outbox.deliveries (event_id, durable, due_at, interruptions, lease)
         SELECT gen_random_uuid(), n % 3 + 1, now() - n * interval '1 ms', n % 4, CASE WHEN n % 5 = 0 THEN 9 END FROM ${many}`,
      `INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at, resolved_at)
         SELECT gen_random_uuid(), 'd1', 'a.b.c', '{}', now(), CASE WHEN n % 2 = 0 THEN now() END FROM ${many}`,
    ])
      await store.query(sql);
  });
  afterAll(async () => {
    await connection.close();
    await source.destroy();
    await store.drop();
  });

  const grown = ['queue', 'scheduled', 'deliveries', 'events', 'handled', 'dead_letters'];

  it.each(healthParts)('read by an index and stop at their limit, vacuumed or not: %s', async (part) => {
    for (const vacuumed of [false, true]) {
      if (vacuumed) for (const table of grown) await store.query(`VACUUM ANALYZE outbox.${table}`);
      const found = await explain(connection, database.health.ask(7)[part]);
      expect(wholeReads(found, grown)).toEqual([]);
      for (const node of found) expect((node['Actual Rows'] ?? 0) * (node['Actual Loops'] ?? 1)).toBeLessThan(70_000);
    }
  });

  it('count to their limit and know the oldest', async () => {
    const { relay, deliveries, deadLetters } = database.health.ask(7);
    const [queued, waiting, letters] = await connection.run(relay, deliveries, deadLetters);
    expect(queued.rows).toEqual([{ waiting: 10_001, lag_ms: expect.any(Number) }]);
    expect(queued.rows[0]?.lag_ms).toBeGreaterThan(rows - 1);
    expect(waiting.rows.map(({ durable, waiting }) => [durable, waiting]).sort()).toEqual(
      ['d1', 'd2', 'd3'].map((durable) => [durable, 10_001]),
    );
    for (const { oldest_ms } of waiting.rows) expect(oldest_ms).toBeGreaterThan(rows - 100);
    expect(letters.rows).toEqual([{ open: 10_001, oldest: expect.any(Number) }]);
  });

  it('are held to their limit of time, and only for their message', async () => {
    const slow = statement('slow', 'SELECT pg_sleep(8)');
    const begin = performance.now();
    await expect(connection.run(database.health.limit, slow())).rejects.toMatchObject({ code: '57014' });
    expect(performance.now() - begin).toBeLessThan(7_500);
    const setting = statement<{ value: string }>('setting', "SELECT current_setting('statement_timeout') AS value");
    const [after] = await connection.run(setting());
    expect(after.rows).toEqual([{ value: '9s' }]);
  });
});
