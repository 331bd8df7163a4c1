import type { OpenDelivery } from '../outbox.inspect-errors.js';
import type { WaitRow } from '../tables/waits.table.js';
import type { DeliveryState } from './delivery-info.js';
import { firstLine } from './wording.js';

export interface EndedDelivery {
  /** null: the event was cancelled before any durable was to get it. `#relay`: it could not be forwarded. */
  readonly durable: string | null;
  readonly state: Extract<DeliveryState, 'completed' | 'discarded' | 'cancelled'>;
  /** Of a discarded one, with its stack. */
  readonly error: string | null;
}

/** So long a transaction that publishes may be open: an id that nobody knows is waited for when it is younger. */
const uncommittedMs = 60_000;

/** What one look says about an event. */
export type WaitOutcome =
  | { readonly kind: 'ended'; readonly deliveries: readonly EndedDelivery[] }
  /** `as` stays the same for as long as nothing happens. */
  | { readonly kind: 'open'; readonly as: string; readonly open: readonly OpenDelivery[] }
  | { readonly kind: 'uncommitted' | 'unknown' };

/**
 * An event has ended when it is on its way nowhere, and every durable that is to get it has a verdict. Rows are not asked
 * for: what a broker holds has none. One that could not be forwarded has ended as well, since only an operator sends it
 * on.
 */
export function outcomeOf(row: WaitRow): WaitOutcome {
  if (!row.found) return { kind: row.age_ms < uncommittedMs ? 'uncommitted' : 'unknown' };
  if (row.refused !== null) return { kind: 'ended', deliveries: [...ended(row), refusal(row.refused)] };
  if (row.queued || row.open.length > 0) {
    const as = JSON.stringify([row.queued, row.open, row.ended.length]);
    return { kind: 'open', as, open: open(row) };
  }
  return { kind: 'ended', deliveries: ended(row) };
}

/** In few words; `explain` has more, if this process may read what it reads. */
function open({ queued, open: deliveries }: WaitRow): OpenDelivery[] {
  const event: OpenDelivery[] = queued ? [{ durable: null, reason: 'open', text: 'not forwarded yet' }] : [];
  return [...event, ...deliveries.map(({ durable, error }) => ({ durable, reason: 'open', text: firstLine(error) }))];
}

const states = { d: 'completed', x: 'discarded', c: 'cancelled' } as const;

/** The mark for everybody is left out where a durable has one of its own. */
function ended({ ended: marks }: WaitRow): EndedDelivery[] {
  const own = marks.filter(({ durable }) => durable !== null);
  return (own.length > 0 ? own : marks).map(({ durable, verdict, error }) => ({
    durable,
    state: states[verdict],
    error,
  }));
}

function refusal(error: string): EndedDelivery {
  return { durable: '#relay', state: 'discarded', error };
}
