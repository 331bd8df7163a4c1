import { type Duration, parseDuration } from '../core/duration.js';
import { wrongUsage } from './cli-error.js';

const clock = /^([01]?\d|2[0-3]):([0-5]\d)$/;
const iso = /^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$/;

/**
 * A time as people write it: `06:00` (the next, or of what is past the last, in the local time zone), `2h` (from now,
 * or ago), or an ISO date with or without a time. A date alone begins at midnight UTC, as in JavaScript.
 */
export function parseWhen(option: string, text: string, which: 'next' | 'last', now = new Date()): Date {
  const sign = which === 'next' ? 1 : -1;
  const duration = parseDuration(text as Duration);
  if (duration !== undefined) return new Date(now.getTime() + sign * duration);
  const [, hours, minutes] = clock.exec(text) ?? [];
  if (hours !== undefined && minutes !== undefined) return atClock(Number(hours), Number(minutes), sign, now);
  const date = iso.test(text) ? new Date(text.replace(' ', 'T')) : undefined;
  if (date === undefined || Number.isNaN(date.getTime()))
    throw wrongUsage(`${option} '${text}' is no time: write 06:00, a length of time such as 2h, or 2026-01-31T06:00Z`);
  return date;
}

/** By the calendar and not by 24 hours: two days a year have 23 or 25. */
function atClock(hours: number, minutes: number, sign: 1 | -1, now: Date): Date {
  const date = new Date(now);
  date.setHours(hours, minutes, 0, 0);
  if ((date.getTime() - now.getTime()) * sign <= 0) date.setDate(date.getDate() + sign);
  return date;
}
