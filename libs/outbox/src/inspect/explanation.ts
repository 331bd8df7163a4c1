import type { DeliveryState, EventInfo } from './delivery-info.js';

/** One of three: an event's id, a subject (of any type), or a unique key with its type. */
export interface ExplainQuery {
  readonly id?: string;
  readonly subject?: string;
  readonly unique?: string;
  /** Narrows a subject; needed with `unique` when several types have that key. */
  readonly type?: string;
  readonly tenantId?: string;
}

export type ExplainReason =
  /** Never committed, or forgotten since. */
  | 'not-found'
  | 'not-due'
  /** In the queue, and the relay works on others. */
  | 'relay-behind'
  /** In the queue, and no worker lives that would forward it. */
  | 'relay-stopped'
  /** The broker refuses it, or is not reached. */
  | 'forwarding-fails'
  | 'no-subscriber'
  /** The durable began with that type later. */
  | 'not-meant'
  | 'paused'
  | 'queued'
  | 'running'
  | 'retrying'
  | 'dead'
  | 'cancelled'
  | 'handled'
  /** It is due, and no worker that handles it was seen lately. */
  | 'no-worker';

/** Why one delivery (or one event, with a durable of null) is where it is. */
export interface Finding {
  readonly eventId: string | null;
  readonly durable: string | null;
  readonly reason: ExplainReason;
  readonly state: DeliveryState | null;
  /** Who and when, in words. */
  readonly text: string;
  /** The next command to type; null when there is nothing to do. */
  readonly next: string | null;
}

export interface Explanation {
  /** Newest first, at most 20. */
  readonly events: readonly EventInfo[];
  readonly findings: readonly Finding[];
  /** All of it in words, as the command line prints it. */
  readonly text: string;
}
