import type { JobRow } from '../tables/jobs.table.js';
import type { JobDefinition } from './job-definition.js';

/** What a job's row asks of a process that has it and does not run it. Milliseconds. */
export type Step =
  /** Nothing before then. */
  | { readonly kind: 'wait'; readonly ms: number }
  /** The row has another schedule: this process is the older version. */
  | { readonly kind: 'quiet' }
  /** A slot is due. `next`: the one after it. */
  | { readonly kind: 'tick'; readonly slot: number; readonly next: number }
  /** Somebody asked for one more run, whose slot is that moment. `next`: the slot after now. */
  | { readonly kind: 'asked'; readonly slot: number; readonly next: number }
  /** An attempt that runs elsewhere, or that died. Its lock tells. */
  | { readonly kind: 'unfinished'; readonly slot: number; readonly attempt: number }
  /** A slot that failed is due again; `attempt` is the one to come. */
  | { readonly kind: 'retry'; readonly slot: number; readonly attempt: number };

/** How late a slot may begin and still count as met, in milliseconds: a blocked event loop, a lock that changes hands. */
const metWithin = 10_000;

/** The slot that is due, if any, when `last` was the last one begun. */
export function dueSlot(
  { schedule, missed }: Pick<JobDefinition, 'schedule' | 'missed'>,
  last: number,
  now: number,
): number | undefined {
  // Slots that are not made up for are not looked for: a look comes every second or so, and `last` may be months ago.
  return schedule.latest(missed === 'skip' ? Math.max(last, now - metWithin - 1) : last, now);
}

/**
 * What was left unfinished comes first, or the tenants that it had not got to would be lost; then a new slot, before the
 * retry of an old one that failed. What was asked for comes last: no slot of the schedule loses its run or its retries
 * to it.
 */
export function nextStep(job: Pick<JobDefinition, 'schedule' | 'missed'>, row: JobRow): Step {
  const { now, last_slot, running_slot, retry_at, asked_at, attempt } = row;
  const { schedule } = job;
  if (row.schedule !== schedule.text) return { kind: 'quiet' };
  if (running_slot !== null && retry_at === null) return { kind: 'unfinished', slot: running_slot, attempt };
  const slot = dueSlot(job, last_slot, now);
  if (slot !== undefined) return { kind: 'tick', slot, next: schedule.next(slot) };
  if (running_slot !== null && retry_at !== null && retry_at <= now)
    return { kind: 'retry', slot: running_slot, attempt: attempt + 1 };
  // No slot between `last` and now is due, so this is the slot after `last`; a clock that was put back may be before it.
  const next = schedule.next(Math.max(last_slot, now));
  if (asked_at !== null && running_slot === null) return { kind: 'asked', slot: asked_at, next };
  return { kind: 'wait', ms: Math.min(next, retry_at ?? Number.POSITIVE_INFINITY) - now };
}
