import { didYouMean } from '../core/nearest.js';
import { isStorable } from '../core/storable.js';
import { firstUuid, isUuid, uuidFloor } from '../core/uuid.js';
import { InvalidQueryError } from '../outbox.inspect-errors.js';
import { matcherOf } from '../tables/durables.table.js';
import type { Value } from '../tables/wire/statement.js';
import type { DeliveryFilter } from './delivery-filter.js';
import { type DeliveryState, deliveryStates } from './delivery-info.js';
import { momentOf } from './moment.js';
import type { Place } from './place.js';

/** A filter that was looked through. */
export interface Wanted {
  readonly states: readonly DeliveryState[];
  readonly durable: string | null;
  readonly matcher: string | null;
  readonly tenant: string | null;
  readonly subject: string | null;
  readonly eventId: string | null;
  readonly error: string | null;
  readonly from: Date | null;
  readonly to: Date | null;
}

export const everything: Wanted = {
  states: deliveryStates,
  durable: null,
  matcher: null,
  tenant: null,
  subject: null,
  eventId: null,
  error: null,
  from: null,
  to: null,
};

/** An event is published after its id was minted when it had to wait for a twin's transaction; nobody waits longer. */
const heldMs = 3_600_000;

const texts = ['durable', 'type', 'tenantId', 'subject', 'eventId', 'error'] as const;
const keys: readonly string[] = ['state', ...texts, 'from', 'to'];

/** What cannot be meant is refused: of a misspelt key nothing would be left, and an action would take all there is. */
export function wantedOf(filter: DeliveryFilter): Wanted {
  const strange = Object.keys(filter).find((key) => !keys.includes(key));
  if (strange !== undefined)
    throw new InvalidQueryError(`'${strange}' is no filter${didYouMean(strange, keys)}; there are ${keys.join(', ')}`);
  for (const key of texts) {
    const value: unknown = filter[key] ?? '';
    if (typeof value !== 'string') throw new InvalidQueryError(`'${key}' is a ${typeof value}; give a text`);
  }
  const { durable = null, tenantId: tenant = null, subject = null, eventId = null, error = null } = filter;
  const states = statesOf(filter.state);
  const matcher = matcherOfType(filter.type);
  momentOf('from', filter.from);
  momentOf('to', filter.to);
  const { from = null, to = null } = filter;
  return { states, durable, matcher, tenant, subject, eventId, error, from, to };
}

/** Why nothing can match it, if that is so: Postgres would refuse the question. */
export function vain({ states, durable, tenant, subject, error, eventId }: Wanted): string | undefined {
  if (states.length === 0) return 'no state is asked for';
  if (eventId !== null && !isUuid(eventId)) return `'${eventId}' is no event's id`;
  return [durable, tenant, subject, error].some((text) => text !== null && !isStorable(text))
    ? 'a text must be one without NUL and half characters'
    : undefined;
}

export function limitOf(limit = 100): number {
  if (Number.isNaN(limit)) throw new InvalidQueryError("'limit' is not a number");
  return Math.min(Math.max(1, Math.trunc(limit)), 1_000);
}

const token = '([a-z][a-z0-9_-]*|\\*)';
const pattern = new RegExp(`^${token}\\.${token}\\.${token}$`);

/** The LIKE form of a type or pattern; null for all. */
export function matcherOfType(type: string | undefined): string | null {
  if (type === undefined) return null;
  if (pattern.test(type)) return matcherOf(type);
  throw new InvalidQueryError(
    `'type' is '${type}', which is neither a type nor a pattern: write three tokens, each a name or '*', such as 'billing.invoice.paid' or 'billing.*.*'`,
  );
}

function statesOf(state: DeliveryFilter['state']): readonly DeliveryState[] {
  if (state === undefined) return deliveryStates.filter((one) => one !== 'completed');
  const states = [state].flat();
  for (const one of states) {
    if (!deliveryStates.includes(one)) {
      throw new InvalidQueryError(`'state' knows no '${String(one)}'; it is one of ${deliveryStates.join(', ')}`);
    }
  }
  return states;
}

/** The parameters of a statement of `InspectListTable` for all of a page's rows; see there. */
export function boundOf(place: Place, least: string, wanted: Wanted, ids: readonly string[]): Value[] {
  return [...parameters(place, least, 100_000, 100_000, wanted, wanted.states), ids];
}

/** The parameters, for so many rows and looks at most. */
export function parameters(
  place: Place,
  least: string,
  limit: number,
  look: number,
  wanted: Wanted,
  states: readonly DeliveryState[],
): Value[] {
  const { durable, matcher, tenant, error, from, to } = wanted;
  const moments = [from, to].map((moment) => moment?.toISOString() ?? null);
  return [place.eventId, place.durable, least, limit, look, states, durable, matcher, tenant, error, ...moments];
}

/** The smallest id that may match: nothing is due before it is published. */
export function leastOf({ from }: Wanted): string {
  return from === null ? firstUuid : uuidFloor(new Date(from.getTime() - heldMs));
}

/** The parameters of a look of `ActionsTable`: event id, durable, matcher, tenant, subject, error, from, to. */
export function searched({ eventId, durable, matcher, tenant, subject, error, from, to }: Wanted): Value[] {
  const moments = [from, to].map((moment) => moment?.toISOString() ?? null);
  return [eventId, durable, matcher, tenant, subject, error, ...moments];
}
