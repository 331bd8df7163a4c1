import { InvalidQueryError } from '../outbox.inspect-errors.js';

const [first, last] = [Date.parse('0001-01-01T00:00Z'), Date.parse('9999-12-31T23:59:59.999Z')];

/** For the database. A Date reaches further than the years of four digits, and Postgres does not read those as it writes them. */
export function momentOf(option: string, date: Date | undefined): string | null {
  if (date === undefined) return null;
  if (!(date instanceof Date) || Number.isNaN(date.getTime()))
    throw new InvalidQueryError(`'${option}' is no valid date; it must be a Date`);
  if (date.getTime() < first || date.getTime() > last)
    throw new InvalidQueryError(`'${option}' lies beyond the years 1 to 9999: leave it out`);
  return date.toISOString();
}
