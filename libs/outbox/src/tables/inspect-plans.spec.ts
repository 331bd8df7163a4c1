import { DataSource } from 'typeorm';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import { Database } from './database.js';
import { outboxSchema } from './schema/outbox-schema.js';
import { type Bound, statement } from './wire/statement.js';

const showJit = statement<{ jit: string }>('show_jit', "SELECT current_setting('jit') AS jit")();
const id = '019a0000-0000-7000-8000-000000000000';

describe('what operators ask and do on the application’s pool', () => {
  let store: TestDatabase;
  let source: DataSource;
  let database: Database;

  beforeAll(async () => {
    store = await createDatabase();
    // As a server is that nobody has configured.
    await store.query(`ALTER DATABASE ${new URL(store.url).pathname.slice(1)} SET jit = on`);
    source = await new DataSource({ type: 'postgres', url: store.url }).initialize();
    await outboxSchema.up(source);
    database = new Database(source, 'outbox');
  });
  afterAll(async () => {
    await source.destroy();
    await store.drop();
  });

  const plan = ({ name, text, values }: Bound): Bound<{ 'QUERY PLAN': string }> =>
    ({ name: `plan_${name}`, text: `EXPLAIN ${text}`, values }) as never;
  const lines = (rows: readonly { 'QUERY PLAN': string }[]) => rows.map((row) => row['QUERY PLAN']).join('\n');

  const actions: [string, (database: Database) => Bound][] = [
    ['retry', ({ actions }) => actions.retry([id], ['ledger'], 'ann', null, null)],
    ['its preview', ({ actions }) => actions.preview([id], ['ledger'])],
    ['discard', ({ actions }) => actions.discard([id], ['ledger'], 'ann', null, null)],
    ['send', ({ actions }) => actions.send(id, 'ledger', 'ann', null, 'false')],
  ];

  /** A scan that is switched off and taken all the same is so dear before PostgreSQL 18 that the server compiles for seconds. */
  it.each(actions)('%s is not compiled before it runs', async (_, action) => {
    const [, jit, { rows }] = await database.onPool(database.actions.byKeys, showJit, plan(action(database)));
    expect(jit.rows).toEqual([{ jit: 'off' }]);
    expect(lines(rows)).not.toContain('JIT');
    expect(await database.onPool(showJit)).toMatchObject([{ rows: [{ jit: 'on' }] }]);
  });

  it('the events of a subject are found by it, however many have another', async () => {
    await store.query(`INSERT INTO outbox.events (bucket, id, type, subject, payload)
      SELECT outbox.bucket(id), id, 'a.b.c', 'customer-' || n % 20, '{}' FROM (SELECT n, outbox.uuid7(now() - n * interval '1 second') AS id FROM generate_series(1, 40000) n OFFSET 0) x`);
    // So many subjects that the statistics hold few of them.
    for (const day of Array.from({ length: 10 }, (_, day) => day))
      await store.query(`ALTER TABLE outbox.events_${day} ALTER subject SET STATISTICS 1`);
    await store.query('ANALYZE outbox.events');
    const [{ rows }] = await database.onPool(plan(database.explain.bySubject('nobody', null, null, 20)));
    expect(lines(rows)).not.toMatch(/events_\d_pkey/);
    const listed = database.inspectList.bySubject('nobody', 'ffffffff-ffff-ffff-ffff-ffffffffffff', id, 200);
    const [answer] = await database.snapshot(plan(listed));
    expect(lines(answer.rows)).not.toMatch(/events_\d_pkey/);
  });
});
