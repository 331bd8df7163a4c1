import { Injectable } from '@nestjs/common';
import { type JobContext, PeriodicJob } from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { TenantTransactions } from '../auth/tenant-transactions.js';
import { listTenants } from '../auth/tenants.js';
import { JobLog } from '../operations/job-log.js';

const keptMs = 30 * 86_400_000;
const batchSize = 50;

@Injectable()
export class RetentionService {
  constructor(
    private readonly dataSource: DataSource,
    private readonly transactions: TenantTransactions,
    private readonly log: JobLog,
  ) {}

  /**
   * In small batches, each a transaction of its own: nothing waits long for a lock or for vacuum, and what is done is
   * done when the process stops in the middle. Between two batches it obeys the signal. No `perTenant`, which would put
   * all batches of a tenant into one transaction; but each batch is a tenant's, or the policies would hide every line.
   */
  @PeriodicJob('*/2 * * * * *', { name: 'audit.retention', timeout: '1m' })
  forgetOldLines(ctx: JobContext): Promise<void> {
    return this.log.keep(ctx, async () => {
      const before = new Date(ctx.slot.getTime() - keptMs);
      let removed = 0;
      for (const tenant of await listTenants(this.dataSource.manager))
        for (let batch = batchSize; batch === batchSize; removed += batch) {
          ctx.signal.throwIfAborted();
          batch = await this.forgetBatch(tenant, before);
        }
      return removed;
    });
  }

  private forgetBatch(tenant: string, before: Date): Promise<number> {
    return this.transactions.run(tenant, async (manager) => {
      const [, removed] = await manager.query(
        `DELETE FROM demo.audit_lines WHERE id IN
          (SELECT id FROM demo.audit_lines WHERE created_at < $1 ORDER BY created_at LIMIT $2)`,
        [before, batchSize],
      );
      return removed;
    });
  }
}
