import { Client } from 'pg';
import type { JobLogLine } from './job-promises.js';

/** What the jobs of one run left in the demo's tables, read by their owner: over all tenants. */
export class JobTally {
  private readonly client: Client;

  constructor(
    adminUrl: string,
    /** Slots before the run began are an earlier run's, whoever has finished them. */
    private readonly since: Date,
  ) {
    this.client = new Client({ connectionString: adminUrl });
    this.client.on('error', () => {});
  }

  async open(): Promise<void> {
    await this.client.connect();
  }

  async close(): Promise<void> {
    await this.client.end();
  }

  async lines(): Promise<JobLogLine[]> {
    return (await this.client.query<JobLogLine>(linesSql, [this.since])).rows;
  }

  async tenants(): Promise<string[]> {
    const { rows } = await this.client.query<{ id: string }>('SELECT id FROM demo.tenants ORDER BY id');
    return rows.map(({ id }) => id);
  }

  /** The database's clock; the lines are stamped by it. */
  async now(): Promise<Date> {
    const { rows } = await this.client.query<{ now: Date }>('SELECT clock_timestamp() AS now');
    return rows[0]?.now ?? new Date();
  }

  /** Subscriptions of good cards, each at each slot of the job that renews them, by what went wrong. */
  async renewals(): Promise<{ readonly missing: number; readonly twice: number }> {
    const { rows } = await this.client.query<{ missing: number; twice: number }>(renewalsSql, [this.since]);
    return rows[0] ?? { missing: 0, twice: 0 };
  }
}

/** Parameters: since. */
const linesSql = `
SELECT job, slot, attempt, tenant_id AS tenant, worker, began_at AS began, ended_at AS ended, error
FROM demo.job_log WHERE slot >= $1 ORDER BY began_at, id`;

/** Parameters: since. */
const renewalsSql = `
WITH s AS (SELECT DISTINCT slot FROM demo.job_log WHERE job = 'billing.renew' AND slot >= $1),
r AS (SELECT s.slot, u.id, (SELECT count(*)::int FROM demo.renewals x WHERE x.subscription_id = u.id AND x.slot = s.slot) AS times
  FROM s CROSS JOIN demo.subscriptions u WHERE u.card NOT LIKE 'declined%')
SELECT (count(*) FILTER (WHERE times = 0))::int AS missing, coalesce(sum(greatest(times - 1, 0)), 0)::int AS twice FROM r`;
