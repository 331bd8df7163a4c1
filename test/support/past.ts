import type { TestDatabase } from './test-database.js';

/** What the tables hold about events that a test put into the past; ids of events bear the day they are of. */
export class Past {
  /** Every event is a millisecond after the one before it of the same day. */
  private last = 0;

  constructor(
    private readonly database: TestDatabase,
    readonly type = 'billing.invoice.paid',
    private readonly schema = 'outbox',
  ) {}

  /** Events that were due at noon, so many days ago (ahead, when negative), and nothing else: no queue row, no mark. */
  async events(days: number, count = 1, type = this.type): Promise<string[]> {
    const rows = await this.database.query<{ id: string }>(
      `INSERT INTO ${this.schema}.events (bucket, id, tenant_id, type, subject, payload, headers, created_at)
       SELECT ${this.schema}.bucket(id), id, 'acme', $3, 'inv-' || n, jsonb_build_object('n', n), '{"from":"test"}', at
       FROM (SELECT n, at, ${this.schema}.uuid7(at) AS id FROM generate_series($4::int + 1, $4::int + $2::int) n,
         LATERAL (SELECT date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
           + make_interval(hours => 12 - 24 * $1::int) + n * interval '1 ms' AS at) t) x
       ORDER BY n RETURNING id`,
      [days, count, type, this.last],
    );
    this.last += count;
    return rows.map(({ id }) => id);
  }

  async marked(ids: readonly string[], durable: number, verdict: 'd' | 'x' | 'c' = 'd'): Promise<void> {
    await this.database.query(
      `INSERT INTO ${this.schema}.handled (bucket, event_id, durable, verdict, attempts, worker) SELECT ${this.schema}.bucket(id), id, $2, $3, 2, 7 FROM unnest($1::uuid[]) id`,
      [ids, durable, verdict],
    );
  }

  async failed(ids: readonly string[], durable: number): Promise<void> {
    await this.database.query(
      `INSERT INTO ${this.schema}.attempts (bucket, event_id, durable, n, error) SELECT ${this.schema}.bucket(id), id, $2, 1, 'it failed' FROM unnest($1::uuid[]) id`,
      [ids, durable],
    );
  }

  async queued(ids: readonly string[], due = 'clock_timestamp()'): Promise<void> {
    await this.database.query(
      `INSERT INTO ${this.schema}.queue (event_id, due_at) SELECT id, ${due} FROM unnest($1::uuid[]) id`,
      [ids],
    );
  }

  /** Waiting for a durable: on its ladder, leased to a worker, or just there. */
  async waiting(ids: readonly string[], durable: number, row: { due?: string; lease?: number } = {}): Promise<void> {
    await this.database.query(
      `INSERT INTO ${this.schema}.deliveries (event_id, durable, due_at, attempt, lease, last_error)
       SELECT id, $2, ${row.due ?? 'clock_timestamp()'}, 1, $3, 'it failed' FROM unnest($1::uuid[]) id`,
      [ids, durable, row.lease ?? null],
    );
  }

  /** The events' ids that are still there, of those given. */
  async left(ids: readonly string[]): Promise<string[]> {
    const rows = await this.database.query<{ id: string }>(`SELECT id FROM ${this.schema}.events WHERE id = ANY ($1)`, [
      ids,
    ]);
    return ids.filter((id) => rows.some((row) => row.id === id));
  }

  /** Everything about the events: rows of the ring, of the queue and of the deliveries, as text. */
  async all(ids: readonly string[]): Promise<string[]> {
    const tables = {
      events: 'id',
      handled: 'event_id',
      attempts: 'event_id',
      queue: 'event_id',
      deliveries: 'event_id',
    };
    const each = Object.entries(tables).map(
      ([table, id]) =>
        `SELECT '${table} ' || to_jsonb(t)::text AS row FROM ${this.schema}.${table} t WHERE ${id} = ANY ($1)`,
    );
    const rows = await this.database.query<{ row: string }>(`${each.join(' UNION ALL ')} ORDER BY 1`, [ids]);
    return rows.map(({ row }) => row);
  }

  /** How many marks and attempts there are of the events. */
  async traces(ids: readonly string[]): Promise<number> {
    return this.database.value<number>(
      `SELECT ((SELECT count(*) FROM ${this.schema}.handled WHERE event_id = ANY ($1)) + (SELECT count(*) FROM ${this.schema}.attempts WHERE event_id = ANY ($1)))::int`,
      [ids],
    );
  }

  /** The files behind the ring's tables: TRUNCATE gives a table a new one. */
  async files(): Promise<Record<string, number>> {
    const rows = await this.database.query<{ name: string; file: number }>(
      `SELECT c.relname AS name, pg_relation_filenode(c.oid)::int AS file FROM pg_class c
       WHERE c.relnamespace = '${this.schema}'::regnamespace AND c.relispartition AND c.relkind = 'r'`,
    );
    return Object.fromEntries(rows.map(({ name, file }) => [name, file]));
  }
}
