import { CronTime } from 'cron';
import { ZoneClock } from './zone-clock.js';

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
const yearMs = 366 * 24 * 3_600_000;

/**
 * A cron expression of five fields, six with seconds, or a preset such as `@daily`, in a time zone. Its slots are the
 * moments at which the zone's clock shows what it says. When the clock goes back, what has fixed hours comes the first
 * time alone, and what comes every hour (`*`) comes both times. When it goes forward, what it skips comes once, however
 * much it is, at the moment of the change; what comes every hour just goes on.
 *
 * The `cron` package, which `@nestjs/schedule` uses, computes them on a clock that nobody puts forward or back. Asked in
 * the zone itself, cron 4.4 has 03:00 twice in a night that goes back (at the second 02:00, too), and what comes every
 * half hour twice or once depending on whether it is asked in summer or in winter: processes would not agree.
 *
 * Throws for an expression or zone that is not known, and from `next` when no date fits within 8 years.
 */
export function cronSchedule(expression: string, timeZone: string): Schedule {
  const time = new CronTime(expression, 'UTC');
  const onClock = (shown: number): number => time.getNextDateFrom(new Date(shown), 'UTC').toMillis();
  const everyHour = time.toJSON()[2] === '*';
  const next = remembered(slotsOf(new ZoneClock(timeZone), onClock, everyHour));
  return { text: `cron ${expression.trim().split(/\s+/).join(' ')} ${timeZone}`, next, latest: byHalves(next) };
}

/** `onClock`: the next time that the clock is to show, after a time that it shows. */
function slotsOf(clock: ZoneClock, onClock: (shown: number) => number, everyHour: boolean): Schedule['next'] {
  return (after) => {
    let from = after;
    let offset = clock.offset(after);
    let shown = after + offset;
    if (!everyHour) shown = Math.max(shown, clock.repeatsUntil(after) - 1);
    for (;;) {
      const found = onClock(shown);
      const change = clock.firstChange(from, found - offset);
      if (!change) return found - offset;
      if (!everyHour && found < change.at + change.after) return change.at;
      from = change.at;
      offset = change.after;
      shown = from + (everyHour ? offset : Math.max(change.before, offset)) - 1;
    }
  };
}

/** Between a moment and the slot after it there is none: whoever asks again on the way, as every look does, has the answer. */
function remembered(next: Schedule['next']): Schedule['next'] {
  let from = Number.POSITIVE_INFINITY;
  let slot = Number.NEGATIVE_INFINITY;
  return (after) => {
    if (after < from || after >= slot) {
      slot = next(after);
      from = after;
    }
    return slot;
  };
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

/**
 * The shortest time between slots among the next few of a year; a job that ticks more than once a minute keeps no
 * history. Not further: of what comes on 29 February the third slot is more than 8 years ahead, and `next` throws.
 */
export function shortestGap(schedule: Schedule, from: number): number {
  let slot = schedule.next(from);
  let shortest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 5 && slot - from < yearMs; i++) {
    const following = schedule.next(slot);
    shortest = Math.min(shortest, following - slot);
    slot = following;
  }
  return shortest;
}
