import { judge } from './health-judgement.js';
import {
  type HealthFigures,
  type HealthProblem,
  healthReport,
  noFigures,
  type RunningJob,
  type VacuumHolder,
} from './health-report.js';
import type { Pause } from './pauses.js';
import { countOf, span } from './wording.js';

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const pollMs = 1 * second;

const inOrder: HealthFigures = {
  relay: { waiting: 0, lagMs: null },
  deliveries: { waiting: 0, oldestMs: null, durables: [] },
  deadLetters: { open: 0, oldest: null },
  jobs: { running: [], lostLocks: [], failed: [] },
  worker: { number: 7, holdsLock: true, listening: true },
  vacuum: { holder: null },
  pauses: [],
  overruns: [],
};

const lag = (lagMs: number, waiting = 12) => ({ relay: { waiting, lagMs } });
const waits = (...durables: [string, number][]) => ({
  deliveries: {
    waiting: durables.length,
    oldestMs: durables[0]?.[1] ?? null,
    durables: durables.map(([durable, oldestMs]) => ({ durable, waiting: 1, oldestMs, unseenMs: 0, paused: false })),
  },
});
const unserved = (oldestMs: number, unseenMs: number | null, paused = false) => ({
  deliveries: { waiting: 1, oldestMs, durables: [{ durable: 'ledger', waiting: 1, oldestMs, unseenMs, paused }] },
});
const pause = (given: Partial<Pause>) => ({
  pauses: [
    {
      id: 3,
      kind: 'durable' as const,
      name: 'ledger',
      since: new Date('2026-01-02T03:00:00Z'),
      until: null,
      by: 'ann',
      reason: 'INC-42',
      ...given,
    },
  ],
});
const run = (given: Partial<RunningJob>) => ({
  jobs: {
    running: [
      {
        job: 'billing.renew',
        slot: new Date('2026-01-02T03:00:00Z'),
        attempt: 1,
        forMs: 20 * minute,
        worker: 7,
        app: 'host-a:41',
        pastTimeoutMs: null,
        pastNextSlotMs: null,
        ...given,
      },
    ],
    lostLocks: [],
    failed: [],
  },
});
const holder = (given: Partial<VacuumHolder>) => ({
  vacuum: {
    holder: {
      kind: 'session' as const,
      pid: 4711,
      applicationName: 'reports',
      user: 'bob',
      state: 'idle in transaction',
      name: null,
      transactions: 5,
      forMs: 0,
      ...given,
    },
  },
});

/** What is expected of a problem: its status, its code, and what its message says. */
type Expected = readonly ['yellow' | 'red', HealthProblem['code'], ...RegExp[]];

const table: [string, Partial<HealthFigures>, ...Expected[]][] = [
  [
    'what is paused, since when, by whom and why',
    pause({}),
    ['yellow', 'paused', /durable 'ledger' is paused since 2026-01-02T03:00:00.000Z by ann: INC-42/, /resume/],
  ],
  [
    'a pause with an end, and without a reason',
    pause({ kind: 'tenant', name: 'acme', until: new Date('2026-01-02T06:00:00Z'), reason: null }),
    ['yellow', 'paused', /tenant 'acme' .* until 2026-01-02T06:00:00.000Z by ann: no reason given/],
  ],
  ['nothing about what waits because its durable is paused', unserved(2 * hour, 2 * hour, true)],
  ['everything in order', {}],
  ['a publisher that may read nothing', noFigures],

  ['events that wait less than half a minute beyond the poll', lag(31 * second)],
  ['a relay that lags', lag(31 * second + 1), ['yellow', 'relay', /^12 events are due .* for 31 s: no worker runs/]],
  ['one event that waits', lag(4 * minute, 1), ['yellow', 'relay', /^1 event is due/]],
  ['a relay that is nearly gone', lag(5 * minute + pollMs), ['yellow', 'relay']],
  ['a relay that is gone', lag(5 * minute + pollMs + 1), ['red', 'relay', /start one/]],
  ['more than was counted', lag(3 * hour, 10_001), ['red', 'relay', /^more than 10,000 events are due .* for 3 h/]],

  ['deliveries that wait less than five minutes', waits(['ledger', 5 * minute + pollMs])],
  [
    'deliveries that wait long, each durable by its name',
    waits(['mail', 1 * hour + pollMs + 1], ['ledger', 6 * minute], ['audit', 4 * minute]),
    ['red', 'deliveries', /^durable 'mail': 1 delivery is due and taken by no worker, the oldest for 60 min/],
    ['yellow', 'deliveries', /'ledger': .* for 6 min: its handlers are too slow or too few; add workers/],
  ],

  ['a durable without a worker, for as long as a deploy may take', unserved(5 * minute, 3 * hour)],
  [
    'a durable without a worker',
    unserved(5 * minute + 1, 5 * minute + 1),
    [
      'red',
      'unserved',
      /^durable 'ledger': 1 delivery is due, and no worker .* for 5 min: .*handlers\.only.*Durables\.retire/,
    ],
  ],
  ['a durable that never had one', unserved(6 * minute, null), ['red', 'unserved', /was seen ever/]],
  [
    'a worker that does not hear others',
    { worker: { number: 7, holdsLock: true, listening: false } },
    ['yellow', 'listener', /LISTEN.*at its poll, and nothing else changes/],
  ],
  [
    'a dead letter, however old',
    { deadLetters: { open: 1, oldest: new Date('2020-01-02T03:04:05Z') } },
    [
      'yellow',
      'dead-letters',
      /^1 dead letter is open, the oldest since 2020-01-02T03:04:05.000Z: npx nestjs-outbox dead-letters .*retry or discard/,
    ],
  ],
  [
    'many of them',
    { deadLetters: { open: 10_001, oldest: new Date(0) } },
    ['yellow', 'dead-letters', /^more than 10,000/],
  ],

  ['a job that runs long and has its time', run({ forMs: 9 * hour })],
  ['a job a moment past its next slot', run({ pastNextSlotMs: 5 * second })],
  [
    'a job past its next slot',
    run({ pastNextSlotMs: 15 * minute }),
    [
      'yellow',
      'job-late',
      /^job 'billing.renew' of slot 2026-01-02T03:00:00.000Z has run for 20 min on host-a:41, 15 min past its next slot/,
    ],
  ],
  [
    'a job past its timeout, and past its next slot as well',
    run({ pastTimeoutMs: 1, pastNextSlotMs: 15 * minute }),
    ['red', 'job-hung', /host-a:41, 1 ms past its timeout\. Its lock is not freed .*ctx\.signal.*or of that process/],
  ],
  [
    'a job whose process is gone',
    run({ pastTimeoutMs: 3 * minute, app: null }),
    ['red', 'job-hung', /on worker 7, which is not registered any more, 3 min past/],
  ],
  [
    'a job whose process is unknown',
    run({ pastTimeoutMs: 3 * minute, app: null, worker: null }),
    ['red', 'job-hung', /worker unknown/],
  ],
  [
    'a job that lost its lock',
    { jobs: { running: [], lostLocks: [{ job: 'outbox.purge', at: new Date('2026-01-02T03:00:01Z') }], failed: [] } },
    ['yellow', 'job-lock-lost', /^job 'outbox.purge' lost .* at 2026-01-02T03:00:01.000Z, .*ctx\.signal/],
  ],

  [
    'a job whose last slot failed',
    {
      jobs: {
        running: [],
        lostLocks: [],
        failed: [{ job: 'billing.renew', at: new Date('2026-01-02T03:00:01Z'), error: 'no' }],
      },
    },
    ['yellow', 'job-failed', /^job 'billing.renew' gave .* at 2026-01-02T03:00:01.000Z: no\./],
  ],
  [
    'a worker without a number',
    { worker: { number: null, holdsLock: false, listening: true } },
    ['red', 'worker', /holds no worker number.*outbox\.worker/],
  ],
  [
    'a worker whose lock is gone',
    { worker: { number: 7, holdsLock: false, listening: true } },
    ['red', 'worker', /worker 7, but the server holds no lock.*pooler/],
  ],
  ['a worker whose lock nobody could ask for', { worker: { number: 7, holdsLock: null, listening: true } }],

  ['a transaction of five minutes', holder({ forMs: 5 * minute, transactions: 9_000_000 })],
  [
    'a transaction longer than that',
    holder({ forMs: 12 * minute }),
    [
      'yellow',
      'vacuum',
      /^session 4711 \('reports', role bob, idle in transaction\) has kept vacuum .* for 12 min; end its transaction \(SELECT pg_terminate_backend\(4711\)\)/,
    ],
  ],
  ['one of more than an hour', holder({ forMs: 1 * hour + 1 }), ['red', 'vacuum']],
  ['a session that hides its time and did little', holder({ forMs: null, state: null, transactions: 300_000 })],
  [
    'a session that hides its time and held long',
    holder({ forMs: null, state: null, transactions: 300_001 }),
    ['yellow', 'vacuum', /role bob, state hidden from this role\) has kept .* for 300001 transactions/],
  ],
  ['the same, longer', holder({ forMs: null, transactions: 3_600_001 }), ['red', 'vacuum']],
  [
    'a handler that ends a moment after its signal',
    { overruns: [{ durable: 'mail', handlers: 1, longestMs: 20_000, apps: 'a:1' }] },
  ],
  [
    'handlers that do not end',
    { overruns: [{ durable: 'mail', handlers: 3, longestMs: 6 * minute, apps: 'a:1' }] },
    ['red', 'handler-hung', /^durable 'mail': 3 handlers are past .* for 6 min, on a:1\. .*restart that process/],
  ],
  [
    'a forgotten prepared transaction',
    holder({ kind: 'prepared transaction', pid: null, name: 'gid-1', forMs: 2 * hour }),
    [
      'red',
      'vacuum',
      /^prepared transaction 'gid-1' of role bob .* for 2 h; end it: COMMIT PREPARED 'gid-1', or ROLLBACK PREPARED$/,
    ],
  ],
  [
    'a query on a standby',
    holder({ kind: 'standby', applicationName: 'replica-2', state: 'active', forMs: null, transactions: 400_000 }),
    ['yellow', 'vacuum', /^a query on standby 'replica-2' \(sender 4711\) has kept .*hot_standby_feedback/],
  ],
  [
    'a slot of a standby that is gone',
    holder({
      kind: 'replication slot',
      pid: null,
      user: null,
      name: 'standby_1',
      forMs: null,
      transactions: 4_000_000,
    }),
    ['red', 'vacuum', /^replication slot 'standby_1' has kept .* for 4000000 transactions; .*drop the slot/],
  ],
];

describe('the judgement of health', () => {
  it.each(table)('%s', (...[, figures, ...expected]: [string, Partial<HealthFigures>, ...Expected[]]) => {
    const problems = judge({ ...inOrder, ...figures }, pollMs);
    expect(problems.map(({ status, code }) => [status, code])).toEqual(
      expected.map(([status, code]) => [status, code]),
    );
    for (const [i, [, , ...says]] of expected.entries())
      for (const pattern of says) expect(problems[i]?.message).toMatch(pattern);
  });

  it('gives an outbox that polls rarely the time of its poll', () => {
    expect(judge({ ...inOrder, ...lag(10 * minute) }, 10 * minute)).toEqual([]);
    expect(judge({ ...inOrder, ...lag(11 * minute) }, 10 * minute)).toHaveLength(1);
    expect(judge({ ...inOrder, ...waits(['ledger', 14 * minute]) }, 10 * minute)).toEqual([]);
  });
});

describe('a report', () => {
  const problem = (status: 'yellow' | 'red', message: string): HealthProblem => ({ status, code: 'relay', message });

  it('is as bad as its worst problem, and says that one first', () => {
    expect(healthReport(inOrder, [])).toEqual({ status: 'green', problems: [], ...inOrder });
    expect(healthReport(inOrder, [problem('yellow', 'a')]).status).toBe('yellow');
    const mixed = healthReport(inOrder, [problem('yellow', 'a'), problem('red', 'b'), problem('yellow', 'c')]);
    expect(mixed.status).toBe('red');
    expect(mixed.problems.map(({ message }) => message)).toEqual(['b', 'a', 'c']);
  });

  it('says lengths of time and counts as people do', () => {
    expect([0, 1_999, 2_000, 119_999, 120_000, 7_199_999, 7_200_000, 172_799_999, 172_800_000].map(span)).toEqual([
      ...['0 ms', '1999 ms', '2 s', '119 s', '2 min', '119 min', '2 h', '47 h', '2 d'],
    ]);
    expect([countOf(1, 'event'), countOf(2, 'event'), countOf(10_000, 'event'), countOf(10_001, 'event')]).toEqual([
      ...['1 event is', '2 events are', '10000 events are', 'more than 10,000 events are'],
    ]);
  });
});
