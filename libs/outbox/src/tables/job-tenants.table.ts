import type { JobAttempt } from './jobs.table.js';
import { type Bound, inSchema, type Statement, statement } from './wire/statement.js';

/** One tenant's part of a slot; `part` counts the calls of `ctx.perTenant` in a run, from 0. */
export interface TenantKey extends Pick<JobAttempt, 'job' | 'slot'> {
  readonly part: number;
  readonly tenant: string;
}

export interface TenantClaimRow {
  readonly claimed: boolean;
  /** Of one that was run before: what it failed with. */
  readonly failed?: string | null;
  readonly pid: number;
}

/** `job_tenants`: which tenants of a slot have been run. The mark is inserted in the tenant's own transaction. */
export class JobTenantsTable {
  /** A transaction with a tenant and no mark. Parameters: tenant, `''` for none. */
  readonly enter: Statement<TenantClaimRow>;
  private readonly claimStatement: Statement<TenantClaimRow>;
  private readonly verdictsStatement: Statement<{ tenant: string; error: string | null }>;
  private readonly failedStatement: Statement;
  private readonly failedAfterStatement: Statement;

  constructor(schema: string) {
    this.enter = statement('tenant_enter', enterSql);
    this.claimStatement = statement('tenant_claim', inSchema(schema, claimSql));
    this.verdictsStatement = statement('tenant_verdicts', inSchema(schema, verdictsSql));
    this.failedStatement = statement('tenant_failed', inSchema(schema, failedSql));
    this.failedAfterStatement = statement('tenant_failed_after', inSchema(schema, failedAfterSql));
  }

  /** Not claimed: somebody has run this tenant for this slot. */
  claim({ job, slot, part, tenant }: TenantKey): Bound<TenantClaimRow> {
    return this.claimStatement(job, slot, part, tenant);
  }

  /** The tenants that have been run, with what they failed with. */
  verdicts({ job, slot, part }: Omit<TenantKey, 'tenant'>): Bound<{ tenant: string; error: string | null }> {
    return this.verdictsStatement(job, slot, part);
  }

  /** Turns the own claim into a failure, behind ROLLBACK TO. */
  failed({ job, slot, part, tenant }: TenantKey, error: string): Bound {
    return this.failedStatement(job, slot, part, tenant, error);
  }

  /** The same behind ROLLBACK, when the claim is gone and the tenant may be somebody else's by now. */
  failedAfter({ job, slot, part, tenant }: TenantKey, error: string): Bound {
    return this.failedAfterStatement(job, slot, part, tenant, error);
  }
}

const slot = "(timestamptz 'epoch' + $2::bigint * interval '1 millisecond')";

const enterSql = `SELECT true AS claimed, pg_backend_pid() AS pid, set_config('app.tenant_id', $1::text, true) AS tenant`;

const claimSql = `SELECT claimed, pid, failed FROM outbox.claim_tenant($1::text, ${slot}, $3::smallint, $4::text)`;

const verdictsSql = `
SELECT tenant, error FROM outbox.job_tenants WHERE job = $1::text AND slot = ${slot} AND part = $3::smallint`;

const failedSql = `
UPDATE outbox.job_tenants SET error = $5::text, finished_at = clock_timestamp()
WHERE job = $1::text AND slot = ${slot} AND part = $3::smallint AND tenant = $4::text`;

const failedAfterSql = `
INSERT INTO outbox.job_tenants (job, slot, part, tenant, error) VALUES ($1::text, ${slot}, $3::smallint, $4::text, $5::text)
ON CONFLICT DO NOTHING`;
