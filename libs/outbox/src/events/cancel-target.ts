import { isUuid } from '../core/uuid.js';
import { InvalidCancelError } from '../outbox.inspect-errors.js';
import type { CancelledRow, CancellingTable } from '../tables/cancelling.table.js';
import type { Bound } from '../tables/wire/statement.js';
import type { CancelTarget } from './event-publisher.js';
import { typeOf } from './event-ref.js';
import { eventTypeProblem } from './event-type.js';
import type { KnownEvents } from './known-events.js';
import { eventNameLength, keyLength, textAsGiven } from './outgoing-event.js';

export interface BoundCancel {
  readonly statement: Bound<CancelledRow>;
  /** Its id or its type. */
  readonly what: string;
}

const refuse = (path: string, problem: string): never => {
  throw new InvalidCancelError(path, problem);
};

const shape = 'must be { id }, { event, unique } or { event, subject }';

/** Checks what is to be cancelled, and turns it into its statement. Throws `InvalidCancelError`. */
export function boundCancel(
  target: CancelTarget,
  currentTenant: () => string | null,
  known: KnownEvents,
  { plain }: CancellingTable,
): BoundCancel {
  if (typeof target !== 'object' || target === null) return refuse('what is to be cancelled', shape);
  if ('id' in target) {
    if (!isUuid(target.id)) return refuse('id', 'is not the id of an event, such as publish(…) answers with');
    return { statement: plain.byId(target.id), what: target.id };
  }
  const type = typeOf(target.event);
  const problem = eventTypeProblem(type) ?? known.strangeness(type);
  if (problem) return refuse('event', problem);
  const tenant = target.tenantId ?? currentTenant();
  if (tenant !== null) given('tenantId', tenant, eventNameLength);
  if ('unique' in target && !('subject' in target))
    return { statement: plain.byUnique(tenant, type, given('unique', target.unique, keyLength)), what: type };
  if ('subject' in target && !('unique' in target))
    return { statement: plain.bySubject(tenant, type, given('subject', target.subject, eventNameLength)), what: type };
  return refuse('what is to be cancelled', shape);
}

function given(path: string, value: unknown, longest: number): string {
  if (typeof value !== 'string') return refuse(path, `must be a string, not ${typeof value}`);
  return textAsGiven(path, value, longest, refuse);
}
