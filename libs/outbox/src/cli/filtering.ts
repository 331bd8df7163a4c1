import type { DeliveryFilter } from '../index.js';
import { wrongUsage } from './cli-error.js';
import { eventId } from './named.js';
import type { FilterOptions } from './options.js';

/** The options as the inspector takes them. */
export function filterOf(options: FilterOptions, eventId?: string): DeliveryFilter {
  const { state, durable, type, tenant, subject, error, from, to } = options;
  const given = { state, durable, type, tenantId: tenant, subject, error, from, to, eventId };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

/** What a command that may act on many is to act on: an event that is named, or all that the filters take. */
export function chosen(verb: string, given: string | undefined, options: FilterOptions): Chosen {
  const id = given === undefined ? undefined : eventId(given);
  const filter = filterOf(options, id);
  // Without any filter everything would match: by mistake, more often than not.
  if (Object.keys(filter).length === 0)
    throw wrongUsage(
      `${verb} what? Give an event id, or filters such as --durable and --type; --state discarded stands for all dead letters`,
    );
  return { id, filter };
}

export interface Chosen {
  readonly id: string | undefined;
  readonly filter: DeliveryFilter;
}
