import { InvalidQueryError } from '../outbox.inspect-errors.js';
import { matcherOf } from '../tables/durables.table.js';
import type { DeliveryFilter } from './listing.js';

/** A filter as the parameters of a statement: event id, durable, matcher, tenant, subject, error, from, to. */
export interface Search {
  readonly filter: DeliveryFilter;
  readonly values: readonly (string | null)[];
}

const texts = ['durable', 'type', 'tenantId', 'subject', 'eventId', 'error'] as const;

/** What is wrong with it is found here, and not by an error of Postgres. */
export function searchOf(filter: DeliveryFilter, patternProblem: (pattern: unknown) => string | undefined): Search {
  for (const key of texts) {
    const value: unknown = filter[key];
    if (value !== undefined && (typeof value !== 'string' || value.includes('\0')))
      throw new InvalidQueryError(`${key} must be a text without NUL`);
  }
  const { eventId, durable, type, tenantId, subject, error, from, to } = filter;
  if (eventId !== undefined && !isEventId(eventId)) throw new InvalidQueryError(`'${eventId}' is no event's id`);
  const problem = type === undefined ? undefined : patternProblem(type);
  if (problem) throw new InvalidQueryError(`'${type}' ${problem}`);
  const matcher = type === undefined ? null : matcherOf(type);
  return {
    filter,
    values: [
      eventId ?? null,
      durable ?? null,
      matcher,
      tenantId ?? null,
      subject ?? null,
      error ?? null,
      moment('from', from),
      moment('to', to),
    ],
  };
}

/** An id that came from a person may be anything; Postgres would answer with an error of its own. */
export function isEventId(id: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id);
}

function moment(key: string, date: Date | undefined): string | null {
  if (date === undefined) return null;
  if (!(date instanceof Date) || Number.isNaN(date.getTime())) throw new InvalidQueryError(`${key} must be a Date`);
  return date.toISOString();
}
