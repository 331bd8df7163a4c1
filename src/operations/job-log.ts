import { Injectable } from '@nestjs/common';
import { type JobContext, Outbox, type TenantJobContext } from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { AppConfig } from '../config/app.config.js';
import { JobLine } from './job-line.entity.js';

/** What the app's jobs did, line by line: the library keeps no history of jobs that run more often than once a minute. */
@Injectable()
export class JobLog {
  constructor(
    private readonly dataSource: DataSource,
    private readonly outbox: Outbox,
    private readonly config: AppConfig,
  ) {}

  /**
   * Begins a line, runs `work`, and ends the line with the number that `work` answers, or with its error. The beginning is
   * committed at once and outside a tenant's transaction, so that it is there even if the process dies; the good end of a
   * tenant's line is part of the tenant's transaction, so that it is there only if the work is.
   */
  async keep(ctx: JobContext | TenantJobContext, work: () => Promise<number>): Promise<void> {
    const id = await this.outbox.outside(() => this.begin(ctx));
    const endedAt = () => 'clock_timestamp()';
    let result: number;
    try {
      result = await work();
    } catch (error) {
      await this.outbox.outside(() => this.dataSource.manager.update(JobLine, id, { error: String(error), endedAt }));
      throw error;
    }
    const manager = 'manager' in ctx ? ctx.manager : this.dataSource.manager;
    await manager.update(JobLine, id, { result, endedAt });
  }

  private async begin(ctx: JobContext | TenantJobContext): Promise<string> {
    const { job, slot, attempt } = ctx;
    const tenantId = 'tenantId' in ctx ? ctx.tenantId : null;
    const line = { job, slot, attempt, tenantId, worker: this.config.process };
    const { identifiers } = await this.dataSource.manager.insert(JobLine, line);
    return identifiers[0]?.['id'];
  }
}
