import type { DeliveryFilter } from '../index.js';
import type { FilterOptions } from './options.js';

/** The options as the inspector takes them. */
export function filterOf(options: FilterOptions, eventId?: string): DeliveryFilter {
  const { state, durable, type, tenant, subject, error, from, to } = options;
  const given = { state, durable, type, tenantId: tenant, subject, error, from, to, eventId };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}
