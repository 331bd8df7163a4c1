import type { TestDatabase } from './test-database.js';

export interface Letters {
  readonly durable: string;
  readonly type: string;
  readonly count: number;
  readonly tenantId?: string;
  readonly subject?: string;
  readonly error?: string;
  /** How long ago they were published, such as '1 hour'. */
  readonly age?: string;
}

/** Dead letters as so many failed attempts leave them: events, verdicts, letters. Resolves to the ids of the events. */
export async function writeLetters(database: TestDatabase, letters: Letters): Promise<string[]> {
  const { durable, type, count, tenantId = null, subject = null, error = 'broken', age = '1 minute' } = letters;
  const rows = await database.query<{ id: string }>(
    `WITH e AS (INSERT INTO outbox.events (bucket, id, tenant_id, type, subject, payload, created_at)
       SELECT outbox.bucket(x.id), x.id, $3::text, $2::text, $4::text, jsonb_build_object('n', x.n), x.at
       FROM (SELECT n, at, outbox.uuid7(at) AS id FROM (SELECT n, clock_timestamp() - $6::interval AS at FROM generate_series(1, $7::int) n) t OFFSET 0) x RETURNING *),
     h AS (INSERT INTO outbox.handled (bucket, event_id, durable, verdict, attempts)
       SELECT e.bucket, e.id, d.id, 'x', 10 FROM e, outbox.durables d WHERE d.name = $1::text OR $1::text = ANY (d.formerly)),
     l AS (INSERT INTO outbox.dead_letters (event_id, durable, tenant_id, type, subject, payload, created_at, error, attempts)
       SELECT id, $1::text, tenant_id, type, subject, payload, created_at, $5::text, 10 FROM e)
     SELECT id FROM e ORDER BY id`,
    [durable, type, tenantId, subject, error, age, count],
  );
  return rows.map(({ id }) => id);
}
