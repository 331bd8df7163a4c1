import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Client } from 'pg';
import { invoicePaid } from '../billing/invoice-paid.event.js';
import { blobRemoved } from '../file/blob-removed.event.js';

/** Who is to handle what, and the table in which it leaves its effect: one row for each time that it did its work. */
export const effects = [
  { type: invoicePaid, durable: 'ledger', table: 'ledger_entries' },
  { type: invoicePaid, durable: 'receipt-mail', table: 'sent_mails' },
  { type: invoicePaid, durable: 'audit', table: 'audit_lines' },
  { type: blobRemoved, durable: 'blob-remover', table: 'blob_removals' },
] as const;

export const knownTypes: readonly string[] = [...new Set(effects.map((effect) => effect.type))];

/** How many deliveries an event of this type makes. */
export function deliveriesOf(type: string): number {
  return effects.filter((effect) => effect.type === type).length;
}

export interface PublishedEvent {
  readonly eventId: string;
  readonly type: string;
  /** The file that is to be gone in the end. */
  readonly path?: string;
}

/** All counted in one statement, so that nothing can move between two figures. */
export interface Counts {
  readonly published: number;
  readonly deliveries: number;
  /** Deliveries with an effect. */
  readonly handled: number;
  /** Effects and dead letters beyond the one that each delivery may have. */
  readonly twice: number;
  readonly missing: number;
  readonly dead: number;
  readonly retried: number;
  /** Rows of this run that still wait for the relay or for a handler. */
  readonly waiting: number;
  /** Mails noted as sent that the mail server does not have. */
  readonly mailsMissing: number;
  /** Mails that the server was handed again and did not deliver again. */
  readonly mailRepeats: number;
}

export interface MissingDelivery {
  readonly event_id: string;
  readonly durable: string;
  readonly state: string;
}

/** Counts what one run published and what came of it, from the demo's tables and as their owner: over all tenants. */
export class Tally {
  private readonly client: Client;
  private unwritten: PublishedEvent[] = [];
  private acknowledged = 0;

  constructor(
    adminUrl: string,
    private readonly run: string,
    private readonly blobFolder: string,
  ) {
    this.client = new Client({ connectionString: adminUrl });
    this.client.on('error', () => {});
  }

  async open(): Promise<void> {
    await this.client.connect();
    await this.client.query('SET jit = off');
  }

  async close(): Promise<void> {
    await this.client.end();
  }

  /** A transaction that published this event was committed. */
  note(event: PublishedEvent): void {
    this.unwritten.push(event);
    this.acknowledged += 1;
  }

  get noted(): number {
    return this.acknowledged;
  }

  async counts(): Promise<Counts> {
    await this.write();
    return this.one<Counts>(countsSql, [this.run, ...pairs]);
  }

  async missing(limit: number): Promise<MissingDelivery[]> {
    const { rows } = await this.client.query<MissingDelivery>(missingSql, [this.run, ...pairs, limit]);
    return rows;
  }

  /** Files of removed blobs that are still there. */
  async filesLeft(): Promise<number> {
    const { rows } = await this.client.query<{ path: string }>(
      'SELECT path FROM demo.published WHERE run = $1 AND path IS NOT NULL',
      [this.run],
    );
    return rows.filter(({ path }) => existsSync(join(this.blobFolder, path))).length;
  }

  /** Files of which no row knows: nothing would ever remove them. */
  async strayFiles(): Promise<number> {
    const { rows } = await this.client.query<{ path: string }>(
      `SELECT path FROM demo.blobs UNION ALL SELECT path FROM demo.uploads
       UNION ALL SELECT path FROM demo.published WHERE run = $1 AND path IS NOT NULL`,
      [this.run],
    );
    const known = new Set(rows.map(({ path }) => path));
    return (await readdir(this.blobFolder)).filter((file) => !known.has(file)).length;
  }

  private async one<Row extends object>(sql: string, values: unknown[]): Promise<Row> {
    const { rows } = await this.client.query<Row>(sql, values);
    const [row] = rows;
    if (!row) throw new Error('the count returned no row');
    return row;
  }

  private async write(): Promise<void> {
    const events = this.unwritten;
    if (events.length === 0) return;
    this.unwritten = [];
    await this.client.query(
      `INSERT INTO demo.published (event_id, run, type, path)
       SELECT e.id, $1, e.type, e.path FROM unnest($2::uuid[], $3::text[], $4::text[]) e(id, type, path)`,
      [this.run, events.map((e) => e.eventId), events.map((e) => e.type), events.map((e) => e.path ?? null)],
    );
  }
}

const pairs = [effects.map((effect) => effect.type), effects.map((effect) => effect.durable)];

const effectsSql = effects
  .map(({ durable, table }) => `SELECT event_id, '${durable}' AS durable, 1 AS effect, 0 AS dead FROM demo.${table}`)
  .join(' UNION ALL ');

/** Parameters: run; types and durables of the subscriptions. */
const deliveriesSql = `
WITH p AS MATERIALIZED (SELECT event_id, type FROM demo.published WHERE run = $1),
o AS (${effectsSql} UNION ALL SELECT event_id, durable, 0, 1 FROM outbox.dead_letters WHERE resolved_at IS NULL),
x AS MATERIALIZED (SELECT p.event_id, s.durable, coalesce(sum(o.effect), 0) AS effects, coalesce(sum(o.dead), 0) AS dead
  FROM p JOIN unnest($2::text[], $3::text[]) s(type, durable) ON s.type = p.type
  LEFT JOIN o ON o.event_id = p.event_id AND o.durable = s.durable GROUP BY p.event_id, s.durable)`;

const countsSql = `${deliveriesSql}
SELECT (SELECT count(*)::int FROM p) AS published, count(*)::int AS deliveries,
  (count(*) FILTER (WHERE effects > 0))::int AS handled, coalesce(sum(greatest(effects + dead - 1, 0)), 0)::int AS twice,
  (count(*) FILTER (WHERE effects + dead = 0))::int AS missing, (count(*) FILTER (WHERE dead > 0))::int AS dead,
  (SELECT count(*)::int FROM outbox.attempts a JOIN p USING (event_id) WHERE a.next_at IS NOT NULL) AS retried,
  (SELECT count(*)::int FROM outbox.queue q JOIN p USING (event_id))
    + (SELECT count(*)::int FROM outbox.deliveries d JOIN p USING (event_id)) AS waiting,
  (SELECT count(*)::int FROM demo.sent_mails m JOIN p USING (event_id)
    WHERE NOT EXISTS (SELECT 1 FROM demo.mailbox b WHERE b.idempotency_key = m.idempotency_key)) AS "mailsMissing",
  (SELECT coalesce(sum(b.repeats), 0)::int FROM demo.mailbox b JOIN demo.sent_mails m USING (idempotency_key) JOIN p USING (event_id)) AS "mailRepeats"
FROM x`;

const missingSql = `${deliveriesSql}
SELECT x.event_id, x.durable, CASE
    WHEN EXISTS (SELECT 1 FROM outbox.queue q WHERE q.event_id = x.event_id) THEN 'waits for the relay'
    WHEN EXISTS (SELECT 1 FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable WHERE d.event_id = x.event_id AND n.name = x.durable) THEN 'waits for a handler'
    WHEN NOT EXISTS (SELECT 1 FROM outbox.events e WHERE e.id = x.event_id) THEN 'the event is gone'
    ELSE 'no trace of the delivery' END AS state
FROM x WHERE effects + dead = 0 ORDER BY x.event_id LIMIT $4`;
