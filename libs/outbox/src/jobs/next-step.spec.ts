import type { JobRow } from '../tables/jobs.table.js';
import { dueSlot, nextStep, type Step } from './next-step.js';
import { cronSchedule, intervalSchedule } from './schedule.js';

const now = Date.parse('2026-11-29T18:00:25.300Z');
const minute = 60_000;
const second = 1_000;
const slot = Date.parse('2026-11-29T18:00:00Z');

/** A job of every minute; the slot that is due is 25.3 s old. */
const once = { schedule: intervalSchedule(minute), missed: 'once' } as const;
const skip = { schedule: intervalSchedule(minute), missed: 'skip' } as const;
const nightly = { schedule: cronSchedule('0 3 * * *', 'UTC'), missed: 'once' } as const;

const row = (given: Partial<JobRow>): JobRow => ({
  job: 'test',
  schedule: once.schedule.text,
  last_slot: slot,
  running_slot: null,
  attempt: 0,
  retry_at: null,
  worker: null,
  paused: false,
  asked_at: null,
  now,
  ...given,
});

interface Case {
  readonly job?: typeof once | typeof skip | typeof nightly;
  readonly row: Partial<JobRow>;
  readonly step: Step;
}

const tick = (of: number, step = minute): Step => ({ kind: 'tick', slot: of, next: of + step });

const asked = (at: number): Step => ({ kind: 'asked', slot: at, next: slot + minute });

const cases: Record<string, Case> = {
  'nothing is due: it waits for the next slot': { row: {}, step: { kind: 'wait', ms: slot + minute - now } },
  'a slot is due': { row: { last_slot: slot - minute }, step: tick(slot) },
  'the moment of a slot belongs to it': { row: { last_slot: slot - minute, now: slot }, step: tick(slot) },
  'a millisecond before it does not': {
    row: { last_slot: slot - minute, now: slot - 1 },
    step: { kind: 'wait', ms: 1 },
  },
  'several were missed: the last of them runs late': { row: { last_slot: slot - 500 * minute }, step: tick(slot) },
  'a night was missed: it runs late, and the next slot is tomorrow': {
    job: nightly,
    row: { schedule: nightly.schedule.text, last_slot: Date.parse('2026-11-26T03:00:00Z') },
    step: tick(Date.parse('2026-11-29T03:00:00Z'), 1_440 * minute),
  },
  'missed, and nothing is made up for: it waits for the next one': {
    job: skip,
    row: { last_slot: slot - minute },
    step: { kind: 'wait', ms: slot + minute - now },
  },
  'missed long ago, and nothing is made up for: it waits for the next one all the same': {
    job: skip,
    row: { last_slot: slot - 500 * minute },
    step: { kind: 'wait', ms: slot + minute - now },
  },
  'less than 10 s late is not missed': {
    job: skip,
    row: { last_slot: slot - minute, now: slot + 10 * second },
    step: tick(slot),
  },
  'more than 10 s late is': {
    job: skip,
    row: { last_slot: slot - minute, now: slot + 10 * second + 1 },
    step: { kind: 'wait', ms: 50 * second - 1 },
  },
  'the row has another schedule: somebody newer runs it': {
    row: { schedule: 'every 1', last_slot: slot - minute, running_slot: slot, attempt: 1 },
    step: { kind: 'quiet' },
  },
  'an attempt that is not known to have ended': {
    row: { running_slot: slot, attempt: 2, worker: 7 },
    step: { kind: 'unfinished', slot, attempt: 2 },
  },
  'what was left unfinished comes before a new slot': {
    row: { running_slot: slot - minute, last_slot: slot - minute, attempt: 1, worker: 7 },
    step: { kind: 'unfinished', slot: slot - minute, attempt: 1 },
  },
  'a new slot comes before the retry of an old one': {
    row: { running_slot: slot - minute, last_slot: slot - minute, attempt: 1, retry_at: now - second },
    step: tick(slot),
  },
  'a retry is due': {
    row: { running_slot: slot, attempt: 1, retry_at: now },
    step: { kind: 'retry', slot, attempt: 2 },
  },
  'a retry comes before the next slot: it waits for it': {
    row: { running_slot: slot, attempt: 1, retry_at: now + 4 * second },
    step: { kind: 'wait', ms: 4 * second },
  },
  'the next slot comes before a retry: it waits for that': {
    row: { running_slot: slot, attempt: 3, retry_at: now + 10 * minute },
    step: { kind: 'wait', ms: slot + minute - now },
  },
  'a retry that is due beside slots that are not made up for': {
    job: skip,
    row: { running_slot: slot - minute, last_slot: slot - minute, attempt: 1, retry_at: now - second },
    step: { kind: 'retry', slot: slot - minute, attempt: 2 },
  },
  'one more run was asked for': { row: { asked_at: now - second }, step: asked(now - second) },
  'asked for by the clock of before it was put back: it is run all the same': {
    row: { asked_at: now + minute },
    step: asked(now + minute),
  },
  'a slot that is due comes before what was asked for': {
    row: { last_slot: slot - minute, asked_at: now - second },
    step: tick(slot),
  },
  'slots that are not made up for do not keep it waiting': {
    job: skip,
    row: { last_slot: slot - minute, asked_at: now - second },
    step: asked(now - second),
  },
  'what runs comes before what was asked for': {
    row: { running_slot: slot, attempt: 1, worker: 7, asked_at: now - second },
    step: { kind: 'unfinished', slot, attempt: 1 },
  },
  'so does a retry that is due': {
    row: { running_slot: slot, attempt: 1, retry_at: now, asked_at: now - second },
    step: { kind: 'retry', slot, attempt: 2 },
  },
  'and one that is to come': {
    row: { running_slot: slot, attempt: 1, retry_at: now + 4 * second, asked_at: now - second },
    step: { kind: 'wait', ms: 4 * second },
  },
  'a process with an older schedule does not run what was asked for': {
    row: { schedule: 'every 1', asked_at: now - second },
    step: { kind: 'quiet' },
  },
  'the last slot lies ahead (a clock was put back): it waits': {
    row: { last_slot: slot + 5 * minute },
    step: { kind: 'wait', ms: slot + 6 * minute - now },
  },
};

describe('what a row asks of a process', () => {
  it.each(Object.entries(cases))('%s', (_, { job = once, row: given, step }) => {
    expect(nextStep(job, row(given))).toEqual(step);
  });

  it('no wait is ever negative', () => {
    for (let late = 0; late < 3 * minute; late += 777)
      for (const job of [once, skip])
        for (const retry_at of [null, slot + 90 * second]) {
          const step = nextStep(job, row({ now: slot + late, retry_at, running_slot: retry_at && slot, attempt: 1 }));
          if (step.kind === 'wait') expect(step.ms).toBeGreaterThan(0);
        }
  });
});

describe('a look at a row', () => {
  const day = 24 * 60 * minute;

  // Rows are looked at whenever any job of the process is due: with one of every second, each of them once a second.
  it.each([
    ['is up to date', nightly, Date.parse('2026-11-29T03:00:00Z')],
    ['has missed two nights, which are not made up for', { ...nightly, missed: 'skip' } as const, now - 2 * day],
    ['has missed a year, which is not made up for', { ...nightly, missed: 'skip' } as const, now - 365 * day],
  ])('costs next to nothing when the job %s', (_, job, last_slot) => {
    const schedule = cronSchedule('0 3 * * *', 'Europe/Vienna');
    const looks = Array.from({ length: 1_000 }, (__, n) => ({ last_slot, now: now + n * 50, schedule: schedule.text }));
    nextStep({ ...job, schedule }, row(looks[0] ?? {}));
    const before = process.cpuUsage();
    for (const look of looks) expect(nextStep({ ...job, schedule }, row(look)).kind).toBe('wait');
    expect(process.cpuUsage(before).user / 1_000).toBeLessThan(2_500);
  });
});

describe('the slot of a job that runs everywhere', () => {
  it('is the last one since it was looked at, if it is not too late', () => {
    expect(dueSlot(skip, slot, slot + minute)).toBe(slot + minute);
    expect(dueSlot(skip, slot, slot + minute - 1)).toBeUndefined();
    expect(dueSlot(skip, slot, slot + 5 * minute + 9 * second)).toBe(slot + 5 * minute);
    expect(dueSlot(skip, slot, slot + 5 * minute + 11 * second)).toBeUndefined();
    expect(dueSlot(once, slot, slot + 5 * minute + 11 * second)).toBe(slot + 5 * minute);
  });
});
