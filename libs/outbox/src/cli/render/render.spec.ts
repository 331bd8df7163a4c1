import type { DeliveryInfo, HealthReport, Overview, Pause, PeriodicInfo } from '../../index.js';
import { noFigures } from '../../inspect/health-report.js';
import { outcomeText, reportText, retry } from './actions.js';
import { eventText, lettersText, pageText } from './deliveries.js';
import { healthText, unread } from './health.js';
import { jobsText } from './jobs.js';
import { overviewText } from './overview.js';
import { pauseWords, resumeCommand } from './pauses.js';
import { columns, line, plain } from './text.js';

const now = new Date('2026-01-31T03:00:00Z');
const before = (seconds: number): Date => new Date(now.getTime() - seconds * 1_000);
const id = '019a2b3c-0000-7000-8000-000000000000';

const pause: Pause = {
  ...{ id: 7, kind: 'durable', name: 'audit', since: before(3_600), until: null, by: 'ana', reason: 'INC-42' },
};
const delivery: DeliveryInfo = {
  ...{ eventId: id, durable: 'receipt-mail', state: 'retryable', type: 'billing.invoice.paid', tenantId: 'acme' },
  ...{ subject: '42', attempts: 4, dueAt: before(-360), since: null, worker: 'host:1', pause: null },
  ...{ error: 'ConnectTimeoutError: smtp.example:587\n    at connect', publishedAt: before(7_200) },
};

describe('text of others', () => {
  it('cannot move the cursor, colour the screen, or break a row', () => {
    expect(plain('a\u001b[2Jb\u0007\rc\nd')).toBe('ab  c\nd');
    expect(line('first\nsecond')).toBe('first');
    expect(line('x'.repeat(100), 10)).toBe(`${'x'.repeat(9)}…`);
    const table = columns(
      ['A', 'B'],
      [
        ['one\ntwo', '\u001b[31mred'],
        ['three', ''],
      ],
    );
    expect(table).toBe('A      B\none    red\nthree');
  });
});

describe('the overview', () => {
  const counts = { pending: 3, running: 1, retryable: 0, completed: 9, discarded: 10_001, cancelled: 0 };
  const overview: Overview = {
    at: now,
    queue: { waiting: 12, oldest: before(120) },
    scheduled: { waiting: 1, next: before(-7_200) },
    durables: [
      {
        ...{ durable: 'ledger', retired: false, paused: null, counts, perSecond: 41.2, seenAt: before(5) },
        oldest: { pending: before(60), retryable: null, discarded: null },
      },
      {
        ...{ durable: 'audit', retired: false, paused: pause, counts, perSecond: 0, seenAt: null },
        oldest: { pending: null, retryable: null, discarded: null },
      },
    ],
    workers: [{ number: 3, app: 'host:1', running: 1, seenAt: before(2) }],
    pauses: [pause],
  };

  it('shows what waits, durable by durable, the workers and the pauses', () => {
    const text = overviewText(overview);
    expect(text).toContain('relay      12 waiting, the oldest due 2 min ago');
    expect(text).toContain('scheduled  1 for later, the next due in 2 h');
    expect(text).toMatch(/^ledger +3 +1 +0 +>10,000 +41 +60 s ago +5 s ago$/m);
    expect(text).toMatch(/^audit .* never +PAUSED$/m);
    expect(text).toMatch(/^3 +host:1 +1 +2 s ago$/m);
    expect(text).toContain('durable audit  since 2026-01-31 02:00:00Z, until it is resumed, by ana: INC-42');
  });

  it('what is in the queue and due later is no backlog', () => {
    expect(overviewText({ ...overview, queue: { waiting: 1, oldest: null } })).toContain('1 waiting, none due yet');
    expect(overviewText({ ...overview, queue: { waiting: 0, oldest: null } })).toMatch(/relay {6}0 waiting$/m);
  });

  it('says loudly that no worker lives', () => {
    expect(overviewText({ ...overview, workers: [] })).toContain('NO WORKER LIVES');
    expect(overviewText(overview)).not.toContain('NO WORKER LIVES');
  });

  it('tells a worker that was killed from one that lives, though its row still stands', () => {
    const killed = { number: 2, app: 'host:9', running: 3, seenAt: before(71) };
    expect(overviewText({ ...overview, workers: [killed] })).toMatch(
      /NO WORKER LIVES[\s\S]*^2 +host:9 +3 +71 s ago +GONE, OR IT HANGS$/m,
    );
    expect(overviewText({ ...overview, workers: [killed, ...overview.workers] })).not.toContain('NO WORKER LIVES');
  });
});

describe('deliveries', () => {
  it('are a row each, with the first line of the error, and how to see more', () => {
    const text = pageText({ deliveries: [delivery], next: 'abc' }, now);
    expect(text).toMatch(
      /^019a2b3c\S+ +receipt-mail +retryable +billing.invoice.paid +acme +42 +4 +in 6 min +ConnectTimeoutError: smtp/m,
    );
    expect(text).not.toContain('at connect');
    expect(text).toContain('--cursor abc');
    expect(pageText({ deliveries: [], next: null }, now)).toBe('nothing matches');
  });

  it('that are paused say so', () => {
    expect(pageText({ deliveries: [{ ...delivery, state: 'pending', pause: 7 }], next: null }, now)).toContain(
      'pending (paused)',
    );
  });

  it('of one event stand beside its payload and its failed attempts, with their stacks', () => {
    const { publishedAt, type, tenantId, subject } = delivery;
    const event = { id, type, tenantId, subject, payload: { n: 1 }, headers: { traceparent: '00' }, publishedAt };
    const relay = { state: 'forwarded', dueAt: null, tries: 0, error: null } as const;
    const attempt = {
      durable: 'receipt-mail',
      n: 4,
      error: delivery.error ?? '',
      worker: '7',
      failedAt: now,
      nextAt: null,
    };
    const text = eventText({ event, relay, deliveries: [delivery], attempts: [attempt] }, now);
    expect(text).toContain(`billing.invoice.paid  ${id}  subject 42  tenant acme`);
    expect(text).toContain('payload    {"n":1}');
    expect(text).toContain('receipt-mail, attempt 4, 2026-01-31 03:00:00Z, on worker 7\n  ConnectTimeoutError');
    expect(text).toContain('      at connect');
  });

  it('that are dead are listed with when and why', () => {
    const letter = {
      ...{ eventId: id, durable: 'ledger', type: 'a.b.c', tenantId: null, subject: null, payload: {}, headers: {} },
      ...{ error: 'TypeError: no', attempts: 10, history: [], deadAt: before(600) },
    };
    expect(lettersText([letter], null, now)).toMatch(/ledger +a.b.c +10 +10 min ago +TypeError: no$/m);
    expect(lettersText([], null, now)).toBe('no dead letter is open');
  });
});

describe('what an action came to', () => {
  const rows = [
    { eventId: id, durable: 'ledger', outcome: 'done', detail: null },
    { eventId: id, durable: 'mail', outcome: 'failed', detail: 'cannot be decoded' },
  ] as const;
  const report = { matched: 2, done: 1, unchanged: 0, failed: 1, dryRun: false, rows };

  it('names what did not go, and nothing else', () => {
    const text = reportText(report, retry);
    expect(text).toContain('retried 1 of 2; 1 failed');
    expect(text).toMatch(/mail +failed +cannot be decoded/);
    expect(text).not.toContain('ledger');
    expect(reportText({ ...report, dryRun: true }, retry)).toMatch(/ledger +would retry$/m);
  });

  it('of one row says why it did not', () => {
    expect(outcomeText(rows[0], retry)).toBe(`retried: ${id} for ledger`);
    expect(outcomeText(rows[1], retry)).toBe(`did not retry ${id} for mail (failed): cannot be decoded`);
  });
});

describe('pauses, jobs and health', () => {
  it('a pause says until when, by whom and why, and how it ends', () => {
    expect(pauseWords({ ...pause, until: before(-3_600), by: null, reason: null })).toBe(
      'since 2026-01-31 02:00:00Z, until 2026-01-31 04:00:00Z',
    );
    expect(resumeCommand(pause)).toBe('npx nestjs-outbox resume audit');
    expect(resumeCommand({ kind: 'tenant', name: 'acme' })).toBe("npx nestjs-outbox resume --tenant 'acme'");
  });

  it('a job shows its schedule, its last run, where it runs, and what was asked of it', () => {
    const run = { slot: before(60), attempt: 1, startedAt: before(60), finishedAt: before(50), worker: 'host:1' };
    const job: PeriodicInfo = {
      ...{ job: 'billing.renew', schedule: '0 3 * * *', next: [before(-86_400)], lastSlot: before(60), paused: null },
      ...{ parallel: false, lock: null, retry: null, outcome: null, askedBy: 'ana' },
      running: { ...{ slot: now, attempt: 1, worker: 'host:2', since: before(4), held: true } },
      ...{ askedAt: before(3), runs: [{ ...run, outcome: 'failed', error: 'boom' }], seenAt: before(9) },
    };
    expect(jobsText([job], now)).toMatch(
      /^billing.renew +0 3 \* \* \* +in 24 h +failed 50 s ago: boom +runs on host:2, begun 4 s ago; one more run was asked for 3 s ago +9 s ago$/m,
    );
    const every = (ms: number): string => jobsText([{ ...job, schedule: `every ${ms}` }], now);
    expect(every(7_200_000)).toContain('  every 2 h  ');
    expect(every(90_000)).toContain('  every 90 s  ');
    expect(every(1_500)).toContain('  every 1500 ms  ');
    expect(jobsText([], now)).toBe('no periodic job is registered');
  });

  it('health shows its problems with their remedies, and knows what it could not read', () => {
    const report: HealthReport = {
      ...noFigures,
      status: 'red',
      problems: [{ status: 'red', code: 'relay', message: '3 events are due; start one' }],
      relay: { waiting: 3, lagMs: 400_000 },
    };
    expect(healthText(report)).toBe(
      'RED\n\nRED relay: 3 events are due; start one\n\nrelay         3 due, the oldest for 6 min',
    );
    expect(unread(report)).toEqual(['deliveries', 'dead letters', 'jobs']);
  });
});
