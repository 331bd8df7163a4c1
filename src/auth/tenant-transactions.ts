import { Injectable } from '@nestjs/common';
import { DataSource, type EntityManager } from 'typeorm';

/** The request's transaction: the database's policies and the outbox both read its tenant from `app.tenant_id`. */
@Injectable()
export class TenantTransactions {
  constructor(private readonly dataSource: DataSource) {}

  run<T>(tenant: string, work: (manager: EntityManager) => Promise<T>): Promise<T> {
    return this.dataSource.transaction(async (manager) => {
      await manager.query(`SELECT set_config('app.tenant_id', $1, true)`, [tenant]);
      return work(manager);
    });
  }
}
