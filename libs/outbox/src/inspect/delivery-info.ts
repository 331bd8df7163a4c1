/** Of one (event, durable), the same on every transport and in the view `outbox.deliveries_state`. */
export type DeliveryState = 'pending' | 'running' | 'retryable' | 'completed' | 'discarded' | 'cancelled';

export const deliveryStates: readonly DeliveryState[] = [
  'pending',
  'running',
  'retryable',
  'completed',
  'discarded',
  'cancelled',
];

/** One (event, durable). */
export interface DeliveryInfo {
  readonly eventId: string;
  /** null: the event was cancelled before any durable was to get it. `#relay`: it could not be forwarded. */
  readonly durable: string | null;
  readonly state: DeliveryState;
  readonly type: string;
  readonly tenantId: string | null;
  readonly subject: string | null;
  /** Attempts that have begun and ended; of a completed one with the one that succeeded. */
  readonly attempts: number;
  /** Of what waits: since when, or from when on, it may run. */
  readonly dueAt: Date | null;
  /** Of what runs or has ended: when that began. */
  readonly since: Date | null;
  /** Host and process id, or the number of a worker that is gone. */
  readonly worker: string | null;
  /** The last error, with its stack; at most 8 KiB. */
  readonly error: string | null;
  /** The number of the pause under which it is parked; `pauses()` has it. */
  readonly pause: number | null;
  readonly publishedAt: Date;
}

/** An event, without what became of it. */
export interface EventInfo {
  readonly id: string;
  readonly type: string;
  readonly tenantId: string | null;
  readonly subject: string | null;
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
  readonly publishedAt: Date;
}

export function dateOf(milliseconds: number | null): Date | null {
  return milliseconds === null ? null : new Date(milliseconds);
}
