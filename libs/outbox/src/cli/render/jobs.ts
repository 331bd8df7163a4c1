import type { JobRunInfo, PeriodicInfo } from '../../index.js';
import { at, away, columns, line } from './text.js';

export function jobsText(jobs: readonly PeriodicInfo[], now: Date): string {
  if (jobs.length === 0) return 'no periodic job is registered';
  return columns(
    ['JOB', 'SCHEDULE', 'NEXT', 'LAST RUN', 'NOW', 'ITS PROCESS SEEN'],
    jobs.map((job) => [
      job.job,
      readable(job.schedule),
      away(job.next[0] ?? null, now),
      lastRun(job.runs[0], now),
      doing(job, now),
      away(job.seenAt, now),
    ]),
  );
}

const units = [
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
] as const;

/** An interval is registered in milliseconds; a rounded one would show another schedule than there is. */
function readable(schedule: string): string {
  const ms = Number(/^every (\d+)$/.exec(schedule)?.[1] ?? Number.NaN);
  const [size, unit] = units.find(([size]) => ms % size === 0) ?? [1, 'ms'];
  return Number.isNaN(ms) ? schedule : `every ${ms / size} ${unit}`;
}

function lastRun(run: JobRunInfo | undefined, now: Date): string {
  if (!run) return 'never';
  const { outcome, finishedAt, startedAt, error } = run;
  const what = `${outcome ?? 'open'} ${away(finishedAt ?? startedAt, now)}`;
  return error === null ? what : `${what}: ${line(error, 60)}`;
}

function doing({ running, retry, paused, askedAt }: PeriodicInfo, now: Date): string {
  const parts = [
    running === null ? '' : `${runs(running)}, begun ${away(running.since, now)}`,
    retry === null
      ? ''
      : `attempt ${retry.attempt} ${retry.at === null ? 'as soon as somebody looks' : away(retry.at, now)}`,
    paused === null ? '' : `PAUSED since ${at(paused.since)}`,
    askedAt === null ? '' : `one more run was asked for ${away(askedAt, now)}`,
  ];
  return parts.filter((part) => part !== '').join('; ');
}

/** Without its lock nobody runs it: its process died, or lost that one connection. */
function runs({ worker, held }: NonNullable<PeriodicInfo['running']>): string {
  const where = worker ?? 'an unknown worker';
  return held ? `runs on ${where}` : `was cut off on ${where}`;
}
