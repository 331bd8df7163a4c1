import type { OutboxEvent } from '../core/envelope.js';

/** A claim that holds an event to handle. */
export interface Claimed {
  readonly event: OutboxEvent;
  /** The attempt that begins, from 1. */
  readonly attempt: number;
  readonly interruptions: number;
  readonly snoozes: number;
  /** The backend that runs the handler's transaction; behind a pooler node-postgres knows another. */
  readonly pid: number;
}

/** What came of one handling of a delivery. */
export type Outcome =
  | 'handled'
  | 'retry'
  | 'snoozed'
  | 'dead'
  /** Cancelled while it ran. */
  | 'cancelled'
  /** Handled before, or its event is gone: nothing to do. */
  | 'settled'
  /** Leased to somebody else by now. */
  | 'dropped'
  /** Not begun; due again soon. */
  | 'postponed'
  /** Cut off; due again. */
  | 'interrupted'
  /** Cut off by our own stop. */
  | 'uncharged'
  /** Serialization failure or deadlock; tried again at once. */
  | 'conflict';

/** What the consumer tells about itself while a delivery is handled. */
export interface Shift {
  readonly stopping: boolean;
  /** Somebody cancelled the event, and wants its handler to end. */
  readonly cancelled: boolean;
  /** Conflicts are charged from here on. */
  readonly lastTry: boolean;
}
