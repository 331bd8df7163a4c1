import { Client } from 'pg';
import { effects } from './tally.js';

interface DurableRow {
  readonly durable: string;
  readonly handled: number;
  readonly waiting: number;
  readonly retrying: number;
  readonly dead: number;
}

interface Totals {
  readonly published: number;
  readonly queued: number;
}

/** What is in the database now, whoever published it. */
export class Summary {
  private readonly client: Client;

  constructor(adminUrl: string) {
    this.client = new Client({ connectionString: adminUrl });
    this.client.on('error', () => {});
  }

  async open(): Promise<void> {
    await this.client.connect();
  }

  async close(): Promise<void> {
    await this.client.end();
  }

  async lines(): Promise<string[]> {
    const totals = await this.client.query<Totals>(totalsSql);
    const durables = await this.client.query<DurableRow>(durablesSql);
    const { published = 0, queued = 0 } = totals.rows[0] ?? {};
    return [
      `events published ${published}, waiting for the relay ${queued}`,
      columns('durable', ['handled', 'waiting', 'retrying', 'dead']),
      ...durables.rows.map((row) => columns(row.durable, [row.handled, row.waiting, row.retrying, row.dead])),
    ];
  }
}

function columns(first: string, others: readonly (string | number)[]): string {
  return `  ${first.padEnd(14)}${others.map((value) => String(value).padStart(9)).join('')}`;
}

const totalsSql = `
SELECT (SELECT count(*)::int FROM outbox.events) AS published, (SELECT count(*)::int FROM outbox.queue) AS queued`;

const handledSql = effects
  .map(
    ({ durable, table }, place) =>
      `SELECT ${place} AS place, '${durable}' AS durable, count(*)::int AS handled FROM demo.${table}`,
  )
  .join(' UNION ALL ');

const durablesSql = `
SELECT h.durable, h.handled, coalesce(d.waiting, 0) AS waiting, coalesce(d.retrying, 0) AS retrying, coalesce(l.dead, 0) AS dead
FROM (${handledSql}) h
LEFT JOIN (SELECT n.name, (count(*) FILTER (WHERE attempt = 0))::int AS waiting, (count(*) FILTER (WHERE attempt > 0))::int AS retrying
  FROM outbox.deliveries x JOIN outbox.durables n ON n.id = x.durable GROUP BY n.name) d ON d.name = h.durable
LEFT JOIN (SELECT durable, count(*)::int AS dead FROM outbox.dead_letters WHERE resolved_at IS NULL GROUP BY durable) l ON l.durable = h.durable
ORDER BY h.place`;
