import { CronTime } from 'cron';

/**
 * The slots of a job: instants that follow from the schedule alone, whoever computes them and whenever. Milliseconds
 * since 1970 everywhere.
 */
export interface Schedule {
  /** Tells this schedule from another one of the same job, in the database: `cron 0 3 * * * Europe/Vienna`, `every 1000`. */
  readonly text: string;
  /** The first slot after a moment. Computed from the slot before, never from "now": a late look must not move the series. */
  next(after: number): number;
  /** The last slot after `after` that is not after `now`, or `undefined`. */
  latest(after: number, now: number): number | undefined;
}

/** Slots are the multiples of `everyMs` since 1970, so that all processes agree without asking each other. */
export function intervalSchedule(everyMs: number): Schedule {
  const floor = (moment: number): number => Math.floor(moment / everyMs) * everyMs;
  return {
    text: `every ${everyMs}`,
    next: (after) => floor(after) + everyMs,
    latest: (after, now) => (floor(now) > after ? floor(now) : undefined),
  };
}

const stepMs = 1_000;
const resumeMs = 30 * 60_000;

/**
 * A cron expression of five fields, six with seconds, or a preset such as `@daily`, in a time zone; its times are those
 * of the `cron` package, which `@nestjs/schedule` uses. When the clock goes back, a fixed hour's slot comes once and
 * those of every hour or minute go on without a gap. When it goes forward, a slot that the clock skips comes once, at
 * the end of the gap or (in zones where January is summer) as much later as the clock has jumped.
 *
 * Throws what `cron` throws: for an expression or zone it does not know, and from `next` when no date fits within 8 years.
 */
export function cronSchedule(expression: string, timeZone: string): Schedule {
  const time = new CronTime(expression, timeZone);
  const at = (moment: number): number => time.getNextDateFrom(new Date(moment), timeZone).toMillis();
  const next = (after: number): number => {
    let found = at(after);
    // Where the clock jumps by an odd number of minutes (Chatham, 45) cron 4.4 may answer with a time that has passed.
    for (let from = after + resumeMs; found <= after; from += resumeMs) found = at(from);
    return found;
  };
  return { text: `cron ${expression.trim().split(/\s+/).join(' ')} ${timeZone}`, next, latest: byHalves(next) };
}

/** Halves the stretch in which the last slot lies: a day that was missed by a job of every second has 86,400 of them. */
function byHalves(next: (after: number) => number): Schedule['latest'] {
  return (after, now) => {
    if (next(after) > now) return undefined;
    let before = after;
    let beyond = now;
    while (beyond - before > stepMs) {
      const middle = Math.floor((before + beyond) / 2);
      if (next(middle) <= now) before = middle;
      else beyond = middle;
    }
    let slot = next(before);
    for (let later = next(slot); later <= now; later = next(later)) slot = later;
    return slot;
  };
}

/** The shortest time between slots among the next few; a job that ticks more than once a minute keeps no history. */
export function shortestGap(schedule: Schedule, from: number): number {
  let slot = schedule.next(from);
  let shortest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 5; i++) {
    const following = schedule.next(slot);
    shortest = Math.min(shortest, following - slot);
    slot = following;
  }
  return shortest;
}
