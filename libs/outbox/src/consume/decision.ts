import { defaultLadderMs, ladderStep } from '../core/backoff.js';
import { errorCode } from '../core/database-errors.js';
import type { Subscription } from './subscription.js';

/** Snoozes of one delivery before a further one counts as a failed attempt (design, section 4). */
export const mostSnoozes = 100;

/** What becomes of a delivery whose handler did not succeed. */
export type Decision =
  | { readonly kind: 'retry'; readonly delayMs: number }
  | { readonly kind: 'snooze'; readonly delayMs: number }
  | { readonly kind: 'dead' }
  /** The event was cancelled while the handler ran: no attempt, and none follows. */
  | { readonly kind: 'cancel' }
  /** The process is stopping: others' destroy hooks may have run, so the failure says nothing about the event. */
  | { readonly kind: 'uncharged' };

export interface Failure {
  readonly error: unknown;
  /** The attempt that failed, from 1. */
  readonly attempt: number;
  readonly snoozes: number;
  readonly stopping: boolean;
  readonly cancelled: boolean;
}

/** Pure: the ladder, the classes of errors (by code: there may be two copies of this package) and the limits. */
export function decide(failure: Failure, subscription: Subscription): Decision {
  // Also at a stop: whoever cancelled it was not asking for a run elsewhere.
  if (failure.cancelled) return { kind: 'cancel' };
  if (failure.stopping) return { kind: 'uncharged' };
  const code = errorCode(failure.error);
  if (code === 'OUTBOX_UNRECOVERABLE') return { kind: 'dead' };
  if (code === 'OUTBOX_SNOOZE' && failure.snoozes < mostSnoozes)
    return { kind: 'snooze', delayMs: snoozeDelay(failure.error) };
  if (failure.attempt >= subscription.maxAttempts) return { kind: 'dead' };
  return { kind: 'retry', delayMs: retryDelay(failure, subscription) };
}

function snoozeDelay(error: unknown): number {
  const delayMs = (error as { delayMs?: unknown }).delayMs;
  return typeof delayMs === 'number' && Number.isFinite(delayMs) ? Math.max(0, delayMs) : 60_000;
}

function retryDelay(failure: Failure, subscription: Subscription): number {
  try {
    return subscription.delayOf(failure.attempt, failure.error);
  } catch {
    // A backoff function of the application that throws must not keep the failure from being recorded.
    return ladderStep(defaultLadderMs, failure.attempt);
  }
}
