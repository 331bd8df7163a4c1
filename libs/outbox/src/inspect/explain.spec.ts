import type { DurableFacts, EventFacts, PauseFacts, RowFacts } from '../tables/explain.table.js';
import { type Scene, standings } from './explain-standing.js';
import { block } from './explain-text.js';
import { ExplainWords } from './explain-words.js';

const at = (time: string): number => Date.parse(`2026-11-12T${time}Z`);
const scene: Scene = { now_ms: at('03:14:07'), zone: 'UTC', living: 2, seen_ms: at('03:14:05'), brokerDown: null };
const id = '019a0000-0000-7000-8000-000000000042';

const event = (given: Partial<EventFacts> = {}): EventFacts => ({
  ...{
    id,
    place: 'events',
    type: 'billing.invoice.paid',
    tenant_id: 'acme',
    subject: '42',
    payload: {},
    headers: null,
  },
  ...{ created_ms: at('01:58:03'), due_ms: at('01:58:03'), queue: null, cancelled_ms: null, letters: [], durables: [] },
  ...given,
});
const durable = (name: string, given: Partial<DurableFacts> = {}): DurableFacts => ({
  ...{ number: name.length, name, state: 'active', seen_ms: at('03:13:30'), meant: true },
  ...{ since_ms: null, ended_ms: null, filling: false, mark: null, row: null, running: null, pause: null },
  like: { count: 0, since_ms: null },
  ...given,
});
const row = (given: Partial<RowFacts> = {}): RowFacts => ({
  ...{
    due_ms: at('01:58:04'),
    attempt: 0,
    interruptions: 0,
    snoozes: 0,
    lease: null,
    error: null,
    app: null,
    held: false,
  },
  ...given,
});
const pause = (given: Partial<PauseFacts> = {}): PauseFacts => ({
  ...{ kind: 'durable', name: 'audit', reason: 'INC-42', paused_by: 'ana', since_ms: at('01:50:00'), until_ms: null },
  ...given,
});

const findings = (given: EventFacts, now: Scene = scene) => {
  const words = new ExplainWords(now);
  return standings(given, now).map((standing) => words.finding(given, standing));
};
const text = (given: EventFacts, now: Scene = scene): string =>
  block([{ event: given, findings: findings(given, now) }], now);
const only = (given: Partial<DurableFacts>, now: Scene = scene) =>
  findings(event({ durables: [durable('ledger', given)] }), now)[0];

describe('an explanation', () => {
  it('is a block in columns: the relay, each durable, and what to type next', () => {
    const durables = [
      durable('audit', { row: row({ lease: -3 }), pause: pause() }),
      durable('fraud', { meant: false, since_ms: at('02:10:00') }),
      durable('ledger', {
        mark: { verdict: 'd', attempts: 1, started_ms: at('01:58:04'), worker: 7, app: 'worker-2:1' },
      }),
      durable('receipt-mail', {
        row: row({ attempt: 3, due_ms: at('03:20:11'), error: 'ConnectTimeoutError smtp.example:587\n  at Socket' }),
        like: { count: 3, since_ms: at('01:40:00') },
      }),
    ];
    expect(
      text(event({ durables })),
    ).toBe(`billing.invoice.paid  ${id}  subject 42  tenant acme  published 01:58:03 (76 min ago)
  relay         FORWARDED  before 01:58:04
  audit         PENDING    durable is paused since 01:50:00 by ana: "INC-42"   → npx nestjs-outbox resume audit
  fraud         NOT MEANT  registered 02:10:00, after this event was published   → npx nestjs-outbox send ${id} --to fraud
  ledger        COMPLETED  01:58:04 by worker-2:1, attempt 1
  receipt-mail  RETRYABLE  attempt 4 03:20:11 (in 6 min): ConnectTimeoutError smtp.example:587   [3 more like it since 01:40:00]   → npx nestjs-outbox retry ${id} --durable receipt-mail

(03:14:07 UTC, by the database's clock)
`);
  });

  it('tells of an event on its way once, and that the durables wait for it', () => {
    const queue = { due_ms: at('03:14:00'), attempts: 0, error: null };
    expect(
      text(event({ tenant_id: null, subject: null, queue, durables: [durable('ledger')] }), { ...scene, living: 0 }),
    ).toBe(
      `billing.invoice.paid  ${id}  published 01:58:03 (76 min ago)
  relay   RELAY STOPPED  in the queue, due since 03:14:00 (7 s): no worker lives that would forward it, the last was seen 03:14:05 (2 s ago)   → npx nestjs-outbox status
  ledger  PENDING        waits for the relay

(03:14:07 UTC, by the database's clock)
`,
    );
  });

  it('shows times in the zone of the database, with the date of another day', () => {
    const vienna = { ...scene, zone: 'Europe/Vienna' };
    const mark = {
      verdict: 'd',
      attempts: 1,
      started_ms: Date.parse('2026-11-10T23:30:00Z'),
      worker: 7,
      app: 'a:1',
    } as const;
    expect(only({ mark }, vienna)?.text).toBe('2026-11-11 00:30:00 by a:1, attempt 1');
    expect(only({ mark: { ...mark, started_ms: at('00:00:01') } }, vienna)?.text).toBe('01:00:01 by a:1, attempt 1');
    // The server may call a zone what JavaScript does not know.
    expect(text(event(), { ...scene, zone: 'posixrules' })).toContain('03:14:07 UTC');
  });

  it('lets no stored text write to the terminal or into the command', () => {
    const evil = "x'; rm -rf ~\u001b[2J";
    const found = only({
      row: row(),
      pause: pause({ kind: 'tenant', name: evil, reason: 'a\u001b[31mb\nc', paused_by: '\u0007' }),
    });
    expect(found?.text).not.toMatch(/\p{Cc}/u);
    expect(found?.next).toBe(`npx nestjs-outbox resume --tenant 'x'\\''; rm -rf ~?[2J'`);
    const long = only({ row: row({ attempt: 1, due_ms: at('04:00:00'), error: 'e'.repeat(8_000) }) });
    expect(long?.text.length).toBeLessThan(300);
  });
});

describe('of several truths about a delivery', () => {
  const queue = { due_ms: at('03:14:00'), attempts: 0, error: null };
  const mark = { verdict: 'd', attempts: 1, started_ms: at('01:58:04'), worker: 7, app: null } as const;
  const running = { worker: 7, app: 'a:1', started_ms: at('03:14:00'), failed_ms: null };
  const reasons = (given: EventFacts, now: Scene = scene) => findings(given, now).map(({ reason }) => reason);

  it.each([
    ['a verdict stands over a pause and a report of running', { mark, running, pause: pause() }, 'handled'],
    ['what runs, runs on under a pause', { running, row: row(), pause: pause() }, 'running'],
    [
      'what is not due yet is not paused yet',
      { row: row({ attempt: 1, due_ms: at('04:00:00') }), pause: pause() },
      'retrying',
    ],
    ['a row stands over what it is meant for', { row: row(), meant: false }, 'queued'],
    ['with a broker, it is paused', { pause: pause() }, 'paused'],
    ['unseen, nobody has it', { seen_ms: at('03:10:00') }, 'no-worker'],
  ] as const)('%s', (_, given, reason) => {
    expect(only(given)?.reason).toBe(reason);
  });

  it('an attempt that has failed and runs on keeps its slot', () => {
    const late = {
      running: { ...running, failed_ms: at('03:14:03') },
      row: row({ attempt: 1, error: 'too late\n at' }),
    };
    expect(only(late)).toMatchObject({
      reason: 'running',
      text: expect.stringMatching(/^by a:1 since .*, attempt 1, which failed 03:14:03 and has not ended .*: too late$/),
    });
  });

  it('what the relay has left for long is not its turn that is missing', () => {
    const text = (due_ms: number) => findings(event({ queue: { ...queue, due_ms } }))[0];
    expect(text(at('03:14:00'))?.text).toMatch(/works on others$/);
    expect(text(at('03:10:00'))).toMatchObject({
      text: expect.stringMatching(/outbox\.relay.*broker/),
      next: 'npx nestjs-outbox health',
    });
  });

  it('in the queue: the pause is the durable’s, the relay the event’s', () => {
    expect(reasons(event({ queue, durables: [durable('ledger', { pause: pause() })] }))).toEqual([
      'relay-behind',
      'paused',
    ]);
  });

  it('this process knows what the database does not: the broker is not reached', () => {
    const down = { ...scene, brokerDown: 'nats is not reached' };
    expect(findings(event({ queue, durables: [durable('ledger')] }), down)).toMatchObject([
      { reason: 'forwarding-fails', text: 'in the queue, due since 03:14:00 (7 s): nats is not reached' },
      { reason: 'forwarding-fails', text: 'waits for the relay' },
    ]);
    expect(reasons(event({ durables: [durable('ledger', { row: row() })] }), down)).toEqual(['queued']);
  });

  it('an event that nobody was to get says so beside those that came later, also while it waits', () => {
    const later = durable('fraud', { meant: false, since_ms: at('02:10:00') });
    expect(reasons(event({ durables: [later] }))).toEqual(['no-subscriber', 'not-meant']);
    expect(reasons(event({ queue, durables: [later] }))).toEqual(['relay-behind', 'no-subscriber', 'not-meant']);
  });
});
