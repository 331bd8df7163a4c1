import { isUuid, lastUuid } from '../core/uuid.js';
import { InvalidQueryError } from '../outbox.inspect-errors.js';

/** Between two deliveries: behind an event's durables with this number and above. Lists go from the newest id down. */
export interface Place {
  readonly eventId: string;
  readonly durable: number;
}

/** Above every durable's number. */
export const topDurable = 32_768;
export const top: Place = { eventId: lastUuid, durable: topDurable };

/** A cursor is opaque to its holder. */
export function cursorOf({ eventId, durable }: Place): string {
  return Buffer.from(`${eventId}/${durable}`).toString('base64url');
}

export function placeOf(cursor: string): Place {
  const [eventId = '', durable = '', ...rest] = Buffer.from(cursor, 'base64url').toString().split('/');
  if (rest.length > 0 || !isUuid(eventId) || !/^-?\d{1,5}$/.test(durable)) {
    throw new InvalidQueryError("'cursor' is none that a page gave as its 'next'");
  }
  return { eventId, durable: Number(durable) };
}

/** Nearer to the beginning of a list. */
export const above = (a: Place, b: Place): boolean =>
  a.eventId === b.eventId ? a.durable > b.durable : a.eventId > b.eventId;
