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
  const slot = schedule.latest(last, now);
  return slot !== undefined && missed === 'skip' && now - slot > metWithin ? undefined : slot;
}

/**
 * What was left unfinished comes first, or the tenants that it had not got to would be lost; then a new slot, before the
 * retry of an old one that failed.
 */
export function nextStep(job: Pick<JobDefinition, 'schedule' | 'missed'>, row: JobRow): Step {
  const { now, last_slot, running_slot, retry_at, attempt } = row;
  if (row.schedule !== job.schedule.text) return { kind: 'quiet' };
  if (running_slot !== null && retry_at === null) return { kind: 'unfinished', slot: running_slot, attempt };
  const slot = dueSlot(job, last_slot, now);
  if (slot !== undefined) return { kind: 'tick', slot, next: job.schedule.next(slot) };
  if (running_slot !== null && retry_at !== null && retry_at <= now)
    return { kind: 'retry', slot: running_slot, attempt: attempt + 1 };
  return { kind: 'wait', ms: Math.min(nextAfter(job, last_slot, now), retry_at ?? Number.POSITIVE_INFINITY) - now };
}

/** From the slot before, unless slots were missed and are not made up for. */
function nextAfter({ schedule }: Pick<JobDefinition, 'schedule'>, last: number, now: number): number {
  const next = schedule.next(last);
  return next > now ? next : schedule.next(now);
}
