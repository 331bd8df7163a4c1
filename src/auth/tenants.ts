import type { EntityManager } from 'typeorm';
import { KnownTenant } from './known-tenant.entity.js';

/** Everybody for whom a job per tenant runs. Their table has no policy: it is read before there is a tenant. */
export async function listTenants(manager: EntityManager): Promise<string[]> {
  const tenants = await manager.find(KnownTenant, { order: { id: 'ASC' } });
  return tenants.map(({ id }) => id);
}
