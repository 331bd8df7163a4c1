import { Client } from 'pg';
import { jobKinds } from './job-promises.js';
import { effects } from './tally.js';

interface DurableRow {
  readonly durable: string;
  readonly handled: number;
  readonly waiting: number;
  readonly retrying: number;
  readonly dead: number;
}

interface JobRow {
  readonly job: string;
  readonly slot: string | null;
  readonly runs: number;
  readonly failed: number;
  readonly cut_off: number;
  /** Who ran the last slot. */
  readonly workers: readonly string[] | null;
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
    const jobs = await this.client.query<JobRow>(jobsSql, [Object.keys(jobKinds), Object.values(jobKinds)]);
    const { published = 0, queued = 0 } = totals.rows[0] ?? {};
    return [
      `events published ${published}, waiting for the relay ${queued}`,
      columns('durable', ['handled', 'waiting', 'retrying', 'dead']),
      ...durables.rows.map((row) => columns(row.durable, [row.handled, row.waiting, row.retrying, row.dead])),
      columns('job', ['last slot', 'runs', 'failed', 'cut off'], '  by'),
      ...jobs.rows.map(({ job, slot, runs, failed, cut_off, workers }) =>
        columns(job, [slot ?? '-', runs, failed, cut_off], `  ${(workers ?? []).join(', ')}`),
      ),
    ];
  }
}

function columns(first: string, others: readonly (string | number)[], last = ''): string {
  return `  ${first.padEnd(16)}${others.map((value) => String(value).padStart(10)).join('')}${last}`;
}

const totalsSql = `
SELECT (SELECT count(*)::int FROM outbox.events) AS published, (SELECT count(*)::int FROM outbox.queue) AS queued`;

const handledSql = effects
  .map(
    ({ durable, table }, place) =>
      `SELECT ${place} AS place, '${durable}' AS durable, count(event_id)::int AS handled FROM demo.${table}`,
  )
  .join(' UNION ALL ');

const durablesSql = `
SELECT h.durable, h.handled, coalesce(d.waiting, 0) AS waiting, coalesce(d.retrying, 0) AS retrying, coalesce(l.dead, 0) AS dead
FROM (${handledSql}) h
LEFT JOIN (SELECT n.name, (count(*) FILTER (WHERE attempt = 0))::int AS waiting, (count(*) FILTER (WHERE attempt > 0))::int AS retrying
  FROM outbox.deliveries x JOIN outbox.durables n ON n.id = x.durable GROUP BY n.name) d ON d.name = h.durable
LEFT JOIN (SELECT durable, count(*)::int AS dead FROM outbox.dead_letters WHERE resolved_at IS NULL GROUP BY durable) l ON l.durable = h.durable
ORDER BY h.place`;

/**
 * A run of a job per tenant has failed when it has for one tenant. Not ended after ten seconds: its process
 * died, and the slot was run again. The last slot of a job that runs everywhere has just begun somewhere: the one before it
 * counts as well when it is said who runs it. Parameters: jobs, their kinds.
 */
const jobsSql = `
SELECT j.job, to_char(max(l.slot), 'HH24:MI:SS') AS slot, (count(DISTINCT (l.slot, l.attempt, l.worker)) FILTER (WHERE l.ended_at IS NOT NULL AND l.error IS NULL))::int AS runs,
  (count(DISTINCT (l.slot, l.attempt, l.worker)) FILTER (WHERE l.error IS NOT NULL))::int AS failed,
  (count(DISTINCT (l.slot, l.attempt, l.worker)) FILTER (WHERE l.ended_at IS NULL AND l.began_at < now() - interval '10 seconds'))::int AS cut_off,
  (SELECT array_agg(DISTINCT x.worker) FROM demo.job_log x WHERE x.job = j.job AND x.slot >= max(l.slot) - CASE j.kind WHEN 'all' THEN interval '1 second' ELSE interval '0' END) AS workers
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY j(job, kind, place) LEFT JOIN demo.job_log l ON l.job = j.job GROUP BY j.job, j.kind, j.place ORDER BY j.place`;
