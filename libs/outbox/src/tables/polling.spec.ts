import { DataSource } from 'typeorm';
import { explain, pagesOf, wholeReads } from '../../../../test/support/explain.js';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import { Database } from './database.js';
import type { InfrastructureConnection } from './infrastructure-connection.js';
import { outboxSchema } from './schema/outbox-schema.js';
import type { Bound } from './wire/statement.js';

const log = { log: () => {}, warn: () => {}, error: () => {} };
const million = 'generate_series(1, 1000000) n';
/** Of several days, as if a week had gone by. */
const id = `outbox.uuid7(now() - n % 7 * interval '1 day')`;
const epoch = '-infinity';

/**
 * A week of finished work: nothing of it may be looked at again and again. A million handled events (a half of them with
 * their rows), a million that are due in a month, a hundred thousand dead letters; and a handful that is due now.
 */
const setUp = [
  `INSERT INTO outbox.durables (name) VALUES ('ledger'), ('mail')`,
  `INSERT INTO outbox.durable_types (durable, pattern, matcher, since) SELECT id, 'a.b.c', 'a.b.c', '-infinity' FROM outbox.durables`,
  `WITH e AS (SELECT ${id} AS id, n FROM ${million}), i AS (INSERT INTO outbox.events (bucket, id, type, payload)
     SELECT outbox.bucket(id), id, 'a.b.c', '{}' FROM e WHERE n % 2 = 0)
   INSERT INTO outbox.handled (bucket, event_id, durable, verdict) SELECT outbox.bucket(id), id, 1, 'd' FROM e`,
  `INSERT INTO outbox.scheduled (id, due_at, type, payload) SELECT gen_random_uuid(), now() + interval '30 days' + n * interval '1 s', 'a.b.c', '{}' FROM ${million}`,
  `INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at) SELECT gen_random_uuid(), 'ledger', 'a.b.c', '{}', now()
     FROM generate_series(1, 100000) n`,
  // What climbs the ladder for hours is no work either, until it is due.
  `INSERT INTO outbox.deliveries (event_id, durable, due_at, attempt) SELECT gen_random_uuid(), 1, now() + interval '1 hour', 4 FROM generate_series(1, 100000) n`,
  `INSERT INTO outbox.job_state (job, schedule) SELECT 'job' || n, 'every 1000' FROM generate_series(1, 20) n`,
];
const grown = ['events', 'handled', 'attempts', 'scheduled', 'dead_letters', 'deliveries', 'queue'];

describe('only live work is touched by what polls', () => {
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
    for (const sql of setUp) await store.query(sql);
  }, 180_000);
  afterAll(async () => {
    await connection.close();
    await source.destroy();
    await store.drop();
  });

  const polls: [string, (database: Database) => Bound][] = [
    ['the fan-out', ({ queue }) => queue.fanOut(epoch, 500, 7, [1, 2], [10, 10], '0 seconds')],
    ['moving what was scheduled', ({ queue }) => queue.moveScheduled()],
    ['taking', ({ deliveries }) => deliveries.take([1, 2], [10, 10], 7, epoch)],
    ['the outlook', ({ deliveries }) => deliveries.outlook([1, 2])],
    ['taking what must run alone', ({ deliveries }) => deliveries.takeAlone([1, 2], 7)],
    ['the sweep', ({ workers }) => workers.sweep(7)],
    ['the sign of life', ({ workers }) => workers.seen(7, '{}', [1, 2])],
    ['the look at jobs', ({ jobs }) => jobs.look(['job1', 'job20'])],
    ['the back-fill when there is none', ({ durables }) => durables.backfill([1, 2], 5_000)],
  ];

  it.each(polls)('%s', async (_, statement) => {
    for (const [event, due] of [
      ['queue', `INSERT INTO outbox.queue (event_id) SELECT id FROM outbox.events LIMIT 3`],
      [
        'deliveries',
        `INSERT INTO outbox.deliveries (event_id, durable) SELECT id, 2 FROM outbox.events ORDER BY id DESC LIMIT 3 ON CONFLICT DO NOTHING`,
      ],
    ] as const)
      if ((await store.value<number>(`SELECT count(*)::int FROM outbox.${event} WHERE due_at <= now()`)) === 0)
        await store.query(due);
    for (const analyzed of [false, true]) {
      if (analyzed) for (const table of grown) await store.query(`ANALYZE outbox.${table}`);
      const plan = await explain(connection, statement(database));
      expect(
        wholeReads(
          plan,
          grown.filter((table) => table !== 'queue' && table !== 'deliveries'),
        ),
      ).toEqual([]);
      // A few rows and the way to them; a million rows are some ten thousand pages.
      expect(pagesOf(plan)).toBeLessThan(400);
    }
  });
});
