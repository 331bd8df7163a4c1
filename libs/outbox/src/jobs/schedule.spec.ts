import { CronExpression } from '@nestjs/schedule';
import fc from 'fast-check';
import { cronSchedule, intervalSchedule, type Schedule, shortestGap } from './schedule.js';

const hour = 3_600_000;
const day = 24 * hour;
const at = (iso: string): number => Date.parse(iso);
const iso = (moment: number | undefined): string | undefined =>
  moment === undefined ? undefined : new Date(moment).toISOString().replace(':00.000Z', 'Z').replace('.000Z', 'Z');

/** The slots after a moment, up to another one. */
function between(schedule: Schedule, from: number, to: number): number[] {
  const slots = [];
  for (let slot = schedule.next(from); slot <= to; slot = schedule.next(slot)) slots.push(slot);
  return slots;
}

/** What the clock of a zone shows, as `03:00`. */
function clock(moment: number, timeZone: string): string {
  return new Intl.DateTimeFormat('en-GB', { timeZone, hour: '2-digit', minute: '2-digit' }).format(moment);
}

describe('an interval', () => {
  it('has its slots at the multiples of its length since 1970, whoever asks and whenever', () => {
    const schedule = intervalSchedule(7_000);
    expect(schedule.next(0)).toBe(7_000);
    expect(schedule.next(6_999)).toBe(7_000);
    expect(schedule.next(7_000)).toBe(14_000);
    expect(schedule.latest(0, 6_999)).toBeUndefined();
    expect(schedule.latest(0, 7_000)).toBe(7_000);
    expect(schedule.latest(7_000, 13_999)).toBeUndefined();
    expect(schedule.latest(1, 1_000_000)).toBe(994_000);
  });

  it('may be longer than the 24.8 days that a timer can wait', () => {
    const schedule = intervalSchedule(90 * day);
    const slot = schedule.next(at('2026-11-29T18:00:00Z'));
    expect(slot % (90 * day)).toBe(0);
    expect(slot - at('2026-11-29T18:00:00Z')).toBeGreaterThan(0);
    expect(schedule.next(slot)).toBe(slot + 90 * day);
    expect(schedule.latest(slot - 1, slot + 89 * day)).toBe(slot);
    expect(schedule.latest(slot, slot + 89 * day)).toBeUndefined();
  });

  it('is told from another by its length', () => {
    expect(intervalSchedule(1_000).text).toBe('every 1000');
    expect(intervalSchedule(60_000).text).not.toBe(intervalSchedule(1_000).text);
  });
});

describe('a cron expression', () => {
  it.each([
    ['of five fields', '30 4 * * *', '2026-11-30T04:30Z'],
    ['of six, with seconds', '15 30 4 * * *', '2026-11-30T04:30:15Z'],
    ['with ranges, lists and steps', '10-50/20 8,20 * * 1-5', '2026-11-30T08:10Z'],
    ['with names', '0 0 1 jan,jul *', '2027-01-01T00:00Z'],
    ['with a day of the month or of the week: either will do', '0 0 24 * sat', '2026-12-05T00:00Z'],
    ['@hourly', '@hourly', '2026-11-29T19:00Z'],
    ['@daily', '@daily', '2026-11-30T00:00Z'],
    ['@weekly', '@weekly', '2026-12-06T00:00Z'],
    ['@monthly', '@monthly', '2026-12-01T00:00Z'],
    ['@yearly', '@yearly', '2027-01-01T00:00Z'],
    ['EVERY_5_SECONDS of CronExpression', CronExpression.EVERY_5_SECONDS, '2026-11-29T18:14:45Z'],
    ['EVERY_DAY_AT_3AM of CronExpression', CronExpression.EVERY_DAY_AT_3AM, '2026-11-30T03:00Z'],
    ['EVERY_QUARTER of CronExpression', CronExpression.EVERY_QUARTER, '2027-01-01T00:00Z'],
    ['29 February', '0 0 29 2 *', '2028-02-29T00:00Z'],
  ])('%s', (_, expression, slot) => {
    expect(iso(cronSchedule(expression, 'UTC').next(at('2026-11-29T18:14:40.250Z')))).toBe(slot);
  });

  it('every one of CronExpression has a slot', () => {
    for (const expression of Object.values(CronExpression))
      expect(cronSchedule(expression, 'Europe/Vienna').next(0)).toBeGreaterThan(0);
  });

  it('is meant in its zone', () => {
    const slot = (zone: string) => iso(cronSchedule('30 4 * * *', zone).next(at('2026-07-01T00:00:00Z')));
    expect(slot('Europe/Vienna')).toBe('2026-07-01T02:30Z');
    expect(slot('America/New_York')).toBe('2026-07-01T08:30Z');
    expect(slot('Asia/Kathmandu')).toBe('2026-07-01T22:45Z');
  });

  it('gives the slot after a slot, not after the moment at which somebody looks', () => {
    const schedule = cronSchedule('*/10 * * * * *', 'UTC');
    const slot = at('2026-11-29T18:14:40Z');
    expect(schedule.next(slot) - slot).toBe(10_000);
    expect(schedule.next(slot + 9_999) - slot).toBe(10_000);
    expect(schedule.next(slot - 1)).toBe(slot);
  });

  it('is told from another by its fields and its zone, and not by its spaces', () => {
    expect(cronSchedule(' 0  3 * * * ', 'UTC').text).toBe(cronSchedule('0 3 * * *', 'UTC').text);
    expect(cronSchedule('0 3 * * *', 'Europe/Vienna').text).not.toBe(cronSchedule('0 3 * * *', 'UTC').text);
  });

  it.each([
    ['30 February', '0 0 30 2 *', 'UTC', /No execution date/],
    ['31 November', '0 0 31 11 *', 'Europe/Vienna', /No execution date/],
  ])('that never comes throws when it is asked: %s', (_, expression, zone, says) => {
    const schedule = cronSchedule(expression, zone);
    expect(() => schedule.next(Date.now())).toThrow(says);
  });

  it.each([
    ['too few fields', '* * *', 'UTC', /Too few fields/],
    ['too many', '* * * * * * *', 'UTC', /Too many fields/],
    ['a minute 61', '61 * * * *', 'UTC', /out of range/],
    ['words', 'every day', 'UTC', /Unknown alias/],
    ['an unknown zone', '0 3 * * *', 'Europe/Wien', /time zone/i],
  ])('that is none throws at once: %s', (_, expression, zone, says) => {
    expect(() => cronSchedule(expression, zone)).toThrow(says);
  });
});

/** `from` to `to` on the clock of a night with a change, and what each expression has then, in UTC and on the clock. */
interface Night {
  readonly zone: string;
  readonly from: string;
  readonly to: string;
  readonly slots: Readonly<Record<string, readonly string[]>>;
}

const forward: readonly Night[] = [
  {
    zone: 'Europe/Vienna', // 02:00 becomes 03:00 at 01:00Z
    from: '2026-03-28T22:59:59Z',
    to: '2026-03-29T03:00:00Z',
    slots: {
      '30 2 * * *': ['01:00Z 03:00'],
      '0 2 * * *': ['01:00Z 03:00'],
      '0 3 * * *': ['01:00Z 03:00'],
      '30 3 * * *': ['01:30Z 03:30'],
      '*/20 2 * * *': ['01:00Z 03:00'],
      '0 * * * *': ['23:00Z 00:00', '00:00Z 01:00', '01:00Z 03:00', '02:00Z 04:00', '03:00Z 05:00'],
      '15,45 * * * *': [
        '23:15Z 00:15',
        '23:45Z 00:45',
        '00:15Z 01:15',
        '00:45Z 01:45',
        '01:15Z 03:15',
        '01:45Z 03:45',
        '02:15Z 04:15',
        '02:45Z 04:45',
      ],
      '0 */2 * * *': ['23:00Z 00:00', '01:00Z 03:00', '02:00Z 04:00'],
    },
  },
  {
    zone: 'America/New_York', // 02:00 becomes 03:00 at 07:00Z
    from: '2026-03-08T05:59:59Z',
    to: '2026-03-08T09:00:00Z',
    slots: {
      '30 2 * * *': ['07:00Z 03:00'],
      '0 3 * * *': ['07:00Z 03:00'],
      '*/30 * * * *': [
        '06:00Z 01:00',
        '06:30Z 01:30',
        '07:00Z 03:00',
        '07:30Z 03:30',
        '08:00Z 04:00',
        '08:30Z 04:30',
        '09:00Z 05:00',
      ],
      '0 * * * *': ['06:00Z 01:00', '07:00Z 03:00', '08:00Z 04:00', '09:00Z 05:00'],
      '0 */2 * * *': ['07:00Z 03:00', '08:00Z 04:00'],
    },
  },
  {
    zone: 'Australia/Sydney', // 02:00 becomes 03:00 at 16:00Z
    from: '2026-10-03T14:59:59Z',
    to: '2026-10-03T18:00:00Z',
    slots: {
      '30 2 * * *': ['16:00Z 03:00'],
      '0 3 * * *': ['16:00Z 03:00'],
      '*/30 * * * *': [
        '15:00Z 01:00',
        '15:30Z 01:30',
        '16:00Z 03:00',
        '16:30Z 03:30',
        '17:00Z 04:00',
        '17:30Z 04:30',
        '18:00Z 05:00',
      ],
      '0 * * * *': ['15:00Z 01:00', '16:00Z 03:00', '17:00Z 04:00', '18:00Z 05:00'],
      '0 */2 * * *': ['16:00Z 03:00', '17:00Z 04:00'],
    },
  },
  {
    zone: 'Pacific/Chatham', // 02:45 becomes 03:45 at 14:00Z
    from: '2026-09-26T12:59:59Z',
    to: '2026-09-26T15:30:00Z',
    slots: {
      '30 2 * * *': ['13:45Z 02:30'],
      '0 3 * * *': ['14:00Z 03:45'],
      '50 3 * * *': ['14:05Z 03:50'],
      '0 * * * *': ['13:15Z 02:00', '14:15Z 04:00', '15:15Z 05:00'],
    },
  },
  {
    zone: 'America/Havana', // midnight becomes 01:00 at 05:00Z
    from: '2026-03-08T03:00:00Z',
    to: '2026-03-08T07:00:00Z',
    slots: { '0 0 * * *': ['05:00Z 01:00'], '@daily': ['05:00Z 01:00'], '30 23 * * *': ['04:30Z 23:30'] },
  },
];

const back: readonly Night[] = [
  {
    zone: 'Europe/Vienna', // 03:00 becomes 02:00 at 01:00Z
    from: '2026-10-24T22:59:59Z',
    to: '2026-10-25T03:00:00Z',
    slots: {
      '30 2 * * *': ['00:30Z 02:30'],
      '0 2 * * *': ['00:00Z 02:00'],
      '0 3 * * *': ['02:00Z 03:00'],
      '30 3 * * *': ['02:30Z 03:30'],
      '*/30 2 * * *': ['00:00Z 02:00', '00:30Z 02:30'],
      '*/30 * * * *': [
        '23:00Z 01:00',
        '23:30Z 01:30',
        '00:00Z 02:00',
        '00:30Z 02:30',
        '01:00Z 02:00',
        '01:30Z 02:30',
        '02:00Z 03:00',
        '02:30Z 03:30',
        '03:00Z 04:00',
      ],
      '0 * * * *': ['23:00Z 01:00', '00:00Z 02:00', '01:00Z 02:00', '02:00Z 03:00', '03:00Z 04:00'],
      '0 */2 * * *': ['00:00Z 02:00', '03:00Z 04:00'],
    },
  },
  {
    zone: 'America/New_York', // 02:00 becomes 01:00 at 06:00Z
    from: '2026-11-01T03:59:59Z',
    to: '2026-11-01T09:00:00Z',
    slots: {
      '30 1 * * *': ['05:30Z 01:30'],
      '0 2 * * *': ['07:00Z 02:00'],
      '30 2 * * *': ['07:30Z 02:30'],
      '*/30 * * * *': [
        '04:00Z 00:00',
        '04:30Z 00:30',
        '05:00Z 01:00',
        '05:30Z 01:30',
        '06:00Z 01:00',
        '06:30Z 01:30',
        '07:00Z 02:00',
        '07:30Z 02:30',
        '08:00Z 03:00',
        '08:30Z 03:30',
        '09:00Z 04:00',
      ],
      '0 * * * *': ['04:00Z 00:00', '05:00Z 01:00', '06:00Z 01:00', '07:00Z 02:00', '08:00Z 03:00', '09:00Z 04:00'],
      '0 */2 * * *': ['04:00Z 00:00', '07:00Z 02:00', '09:00Z 04:00'],
    },
  },
  {
    zone: 'Australia/Sydney', // 03:00 becomes 02:00 at 16:00Z
    from: '2026-04-04T13:59:59Z',
    to: '2026-04-04T18:00:00Z',
    slots: {
      '30 2 * * *': ['15:30Z 02:30'],
      '0 3 * * *': ['17:00Z 03:00'],
      '*/30 * * * *': [
        '14:00Z 01:00',
        '14:30Z 01:30',
        '15:00Z 02:00',
        '15:30Z 02:30',
        '16:00Z 02:00',
        '16:30Z 02:30',
        '17:00Z 03:00',
        '17:30Z 03:30',
        '18:00Z 04:00',
      ],
      '0 * * * *': ['14:00Z 01:00', '15:00Z 02:00', '16:00Z 02:00', '17:00Z 03:00', '18:00Z 04:00'],
      '0 */2 * * *': ['15:00Z 02:00', '18:00Z 04:00'],
    },
  },
  {
    zone: 'Australia/Lord_Howe', // 02:00 becomes 01:30 at 15:00Z
    from: '2026-04-04T13:59:59Z',
    to: '2026-04-04T16:30:00Z',
    slots: {
      '45 1 * * *': ['14:45Z 01:45'],
      '0 2 * * *': ['15:30Z 02:00'],
      '*/15 * * * *': [
        '14:00Z 01:00',
        '14:15Z 01:15',
        '14:30Z 01:30',
        '14:45Z 01:45',
        '15:00Z 01:30',
        '15:15Z 01:45',
        '15:30Z 02:00',
        '15:45Z 02:15',
        '16:00Z 02:30',
        '16:15Z 02:45',
        '16:30Z 03:00',
      ],
    },
  },
  {
    zone: 'America/Santiago', // midnight becomes 23:00 of the day before, at 03:00Z
    from: '2026-04-05T01:30:00Z',
    to: '2026-04-05T05:30:00Z',
    slots: {
      '0 * 4 4 *': ['02:00Z 23:00', '03:00Z 23:00'],
      '0 23 4 4 *': ['02:00Z 23:00'],
      '@daily': ['04:00Z 00:00'],
    },
  },
];

describe.each([
  ['forward: what the clock skips comes once, when it is put forward; what comes every hour just goes on', forward],
  ['back: what has a fixed hour comes the first time alone; what comes every hour comes both times', back],
])('in the night in which the clock is put %s', (_, nights) => {
  const cases = nights.flatMap(({ slots, ...night }) =>
    Object.entries(slots).map(([expression, expected]) => ({ ...night, expression, expected })),
  );
  it.each(cases)('$zone, $expression', ({ zone, from, to, expression, expected }) => {
    const schedule = cronSchedule(expression, zone);
    const slots = between(schedule, at(from), at(to));
    expect(slots.map((slot) => `${iso(slot)?.slice(11)} ${clock(slot, zone)}`)).toEqual(expected);
    // A late look finds the same ones.
    for (const [n, slot] of slots.entries())
      expect(schedule.latest(at(from), (slots[n + 1] ?? at(to) + 1) - 1)).toBe(slot);
    // And whoever looks from the middle of it.
    for (let moment = at(from); moment < at(to); moment += 23 * 60_000)
      expect(cronSchedule(expression, zone).next(moment)).toBe(
        slots.find((slot) => slot > moment) ?? schedule.next(at(to)),
      );
  });

  it.each(cases)('$zone, $expression: the same whether it is computed in winter or in summer', (night) => {
    const { zone, from, to, expression } = night;
    const seen = ['2026-01-15T00:00:00Z', '2026-07-15T00:00:00Z'].map((today) => {
      jest.useFakeTimers({ now: at(today), doNotFake: ['performance'] });
      try {
        return between(cronSchedule(expression, zone), at(from), at(to)).map(iso);
      } finally {
        jest.useRealTimers();
      }
    });
    expect(seen[0]).toEqual(seen[1]);
    expect(seen[0]).toHaveLength(night.expected.length);
  });
});

describe('slots in general', () => {
  const field = (least: number, most: number): fc.Arbitrary<string> => {
    const number = fc.integer({ min: least, max: most });
    return fc.oneof(
      { weight: 3, arbitrary: fc.constant('*') },
      { weight: 3, arbitrary: number.map(String) },
      fc.integer({ min: 2, max: 30 }).map((step) => `*/${step}`),
      fc.uniqueArray(number, { minLength: 2, maxLength: 3 }).map((all) => all.join(',')),
      fc.tuple(number, number).map(([a, b]) => `${Math.min(a, b)}-${Math.max(a, b)}`),
    );
  };
  const expressions = fc
    .tuple(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6))
    .chain((fields) => fc.option(field(0, 59), { nil: undefined }).map((seconds) => [seconds, ...fields]))
    .map((fields) => fields.filter((part) => part !== undefined).join(' '));
  const zones = fc.constantFrom(
    'UTC',
    'Europe/Vienna',
    'Europe/Dublin',
    'America/New_York',
    'America/St_Johns',
    'America/Havana',
    'Africa/Casablanca',
    'Asia/Kathmandu',
    'Australia/Sydney',
    'Australia/Lord_Howe',
    'Pacific/Chatham',
    'Antarctica/Troll',
  );
  const last = '2029-12-31T00:00:00Z';
  const anywhere = fc.integer({ min: at('2024-01-01T00:00:00Z'), max: at(last) });
  /** Most nights are ordinary; these are not. */
  const nights = fc.tuple(
    fc.constantFrom(...[...forward, ...back].map(({ from }) => at(from))),
    fc.integer({ min: -6 * hour, max: 6 * hour }),
  );
  const moments = fc.oneof(
    anywhere,
    nights.map(([night, off]) => night + off),
  );

  // Today is the last day of all: nobody finds a slot more than 8 years ahead of today, and seven are walked here.
  beforeEach(() => {
    jest.useFakeTimers({ now: at(last), doNotFake: ['performance'] });
  });
  afterEach(() => {
    jest.useRealTimers();
  });

  it('are strictly later one after the other, the same from wherever one looks, and `latest` finds what walking finds', () => {
    fc.assert(
      fc.property(
        expressions,
        zones,
        moments,
        fc.integer({ min: 0, max: 3 * hour }),
        (expression, zone, from, late) => {
          const schedule = cronSchedule(expression, zone);
          let before = from;
          let slot = schedule.next(from);
          for (let n = 0; n < 6; n++) {
            expect(slot).toBeGreaterThan(before);
            expect(slot % 1_000).toBe(0);
            // Another one, which does not remember.
            const other = cronSchedule(expression, zone);
            expect(other.next(before + Math.floor((slot - before) / 2))).toBe(slot);
            expect(other.next(slot - 1)).toBe(slot);
            before = slot;
            slot = schedule.next(slot);
          }
          const now = Math.min(from + late, before);
          let walked: number | undefined;
          for (let next = schedule.next(from), n = 0; next <= now && n < 4_000; next = schedule.next(next), n++)
            walked = next;
          // Seconds over hours are walked from nearby, or it takes too long.
          if (walked === undefined || schedule.next(walked) > now) expect(schedule.latest(from, now)).toBe(walked);
          else expect(schedule.next(schedule.latest(from, now) ?? 0)).toBeGreaterThan(now);
        },
      ),
      { numRuns: 80 },
    );
  });

  it('are what somebody finds who looks at the clock every minute', () => {
    const minute = 60_000;
    const before = 180; // so long the clock is remembered: what it shows again is known by that
    const clocks = new Map<string, Intl.DateTimeFormat>();
    const formatOf = (timeZone: string): Intl.DateTimeFormat => {
      const options = { timeZone, hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const;
      const format = clocks.get(timeZone) ?? new Intl.DateTimeFormat('en-GB', options);
      clocks.set(timeZone, format);
      return format;
    };
    const found = (zone: string, from: number, minutes: Set<number>, hours: Set<number>): number[] => {
      const format = formatOf(zone);
      /** Minutes since midnight, for each minute. */
      const clock = Array.from({ length: before + 9 * 60 + 1 }, (_, n) => {
        const [h, m] = format.format(from + (n - before) * minute).split(':');
        return Number(h) * 60 + Number(m);
      });
      const named = (time: number): boolean => minutes.has(time % 60) && hours.has(Math.floor((time % 1_440) / 60));
      const slots = [];
      for (const [n, time] of clock.entries()) {
        if (n <= before) continue;
        const jump = ((time - (clock[n - 1] ?? 0) - 1 + 2_160) % 1_440) - 720;
        const skipped = Array.from({ length: Math.max(0, jump) }, (_, k) => time + 1_439 - k).some(named);
        const again = clock.slice(n - before, n).includes(time);
        const slot = hours.size === 24 ? named(time) : (named(time) && !again) || skipped;
        if (slot) slots.push(from + (n - before) * minute);
      }
      return slots;
    };
    const some = (most: number): fc.Arbitrary<'*' | number[]> =>
      fc.oneof(
        fc.constant('*' as const),
        fc.uniqueArray(fc.integer({ min: 0, max: most }), { minLength: 1, maxLength: 8 }),
      );
    const set = (of: '*' | number[], size: number): Set<number> =>
      new Set(of === '*' ? Array.from({ length: size }, (_, n) => n) : of);
    fc.assert(
      fc.property(some(59), some(23), zones, moments, (minutes, hours, zone, moment) => {
        const from = Math.floor(moment / minute) * minute;
        const schedule = cronSchedule(`${minutes} ${hours} * * *`, zone);
        const expected = found(zone, from, set(minutes, 60), set(hours, 24));
        expect(between(schedule, from, from + 9 * hour).map(iso)).toEqual(expected.map(iso));
      }),
      { numRuns: 15 },
    );
  });

  it('a day that a job of every second has missed costs one look of a few milliseconds', () => {
    const took = ['UTC', 'Europe/Vienna', 'Pacific/Chatham'].map((zone) => {
      const schedule = cronSchedule(CronExpression.EVERY_SECOND, zone);
      const now = at('2026-10-25T12:00:00.400Z');
      const runs = Array.from({ length: 9 }, () => {
        schedule.next(0);
        const before = process.cpuUsage();
        expect(schedule.latest(now - day, now)).toBe(at('2026-10-25T12:00:00Z'));
        return process.cpuUsage(before).user / 1_000;
      });
      return runs.sort((a, b) => a - b)[4] ?? Number.POSITIVE_INFINITY;
    });
    for (const median of took) expect(median).toBeLessThan(50);
  });

  it('tell how close together they come', () => {
    const from = at('2026-11-29T18:14:40Z');
    expect(shortestGap(cronSchedule('* * * * * *', 'UTC'), from)).toBe(1_000);
    expect(shortestGap(cronSchedule('* * * * *', 'UTC'), from)).toBe(60_000);
    expect(shortestGap(cronSchedule('0,1 3 * * *', 'UTC'), from)).toBe(60_000);
    expect(shortestGap(intervalSchedule(90 * day), from)).toBe(90 * day);
  });

  it.each(['2026-11-29T18:14:40Z', '2028-02-01T00:00:00Z'])('of what comes every four years, too, on %s', (today) => {
    jest.setSystemTime(at(today));
    for (const expression of ['0 0 29 2 *', '0,1 0 29 2 *'])
      expect(shortestGap(cronSchedule(expression, 'Europe/Vienna'), at(today))).toBeGreaterThanOrEqual(60_000);
  });
});
