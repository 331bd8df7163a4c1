import { AsyncLocalStorage } from 'node:async_hooks';
import type { Database } from '../tables/database.js';
import type { WaitRow } from '../tables/waits.table.js';
import { outcomeOf } from './wait-outcome.js';
import { WaitPace } from './wait-pace.js';
import { Waiter } from './waiting.js';

const id = '019a0000-0000-7000-8000-000000000042';
const row = (given: Partial<WaitRow> = {}): WaitRow => ({
  ...{ id, age_ms: 1_000, found: true, queued: false, ended: [], open: [], refused: null },
  ...given,
});
const open = [{ durable: 'ledger', attempt: 0, error: null }];
const done = { durable: 'ledger', verdict: 'd', error: null } as const;

describe('an event that is waited for', () => {
  it.each([
    ['is in the queue', { queued: true }, 'open'],
    ['has a durable without a verdict', { open, ended: [done] }, 'open'],
    ['is nobody’s', {}, 'ended'],
    ['may be uncommitted', { found: false }, 'uncommitted'],
    ['is due later and not there', { found: false, age_ms: -3_600_000 }, 'uncommitted'],
    ['is not there, and a minute old', { found: false, age_ms: 60_000 }, 'unknown'],
  ] as const)('%s: %s', (_, given, kind) => {
    expect(outcomeOf(row(given)).kind).toBe(kind);
  });

  it('has an outcome for each durable; the mark for everybody counts when there is no other', () => {
    const all = { durable: null, verdict: 'c', error: null } as const;
    expect(outcomeOf(row({ ended: [all, done] }))).toEqual({
      kind: 'ended',
      deliveries: [{ durable: 'ledger', state: 'completed', error: null }],
    });
    expect(outcomeOf(row({ ended: [all] }))).toEqual({
      kind: 'ended',
      deliveries: [{ durable: null, state: 'cancelled', error: null }],
    });
  });
});

describe('the pace of the looks', () => {
  it('slows down from 20 ms to a second while nothing happens, and begins anew when something has', () => {
    const pace = new WaitPace();
    const pauses = Array.from({ length: 14 }, () => pace.afterLook(false, 1));
    expect(pauses.slice(0, 3)).toEqual([20, 30, 45]);
    expect(pauses.at(-1)).toBe(1_000);
    expect(pace.afterLook(true, 1)).toBe(20);
    expect(pace.afterLook(false, 1)).toBe(20);
  });

  it('never asks a slow database more than half of the time, nor for a newcomer sooner than 20 ms after the last look', () => {
    const pace = new WaitPace();
    expect(pace.atNewcomer(0)).toBe(0);
    expect(pace.afterLook(true, 300, 1_000)).toBe(300);
    expect(pace.atNewcomer(1_005)).toBe(15);
    expect(pace.atNewcomer(1_500)).toBe(0);
  });
});

describe('all waits of a process', () => {
  /** Answers each look with the rows that the test has put there. */
  const outbox = () => {
    const looks: string[][] = [];
    const rows = new Map<string, WaitRow>();
    let broken: Error | undefined;
    const database = {
      waits: { look: (ids: string[]) => ids },
      onPool: async (ids: string[]) => {
        looks.push(ids);
        if (broken) throw broken;
        return [{ rows: ids.flatMap((one) => rows.get(one) ?? []) }];
      },
    };
    const explainer = { explain: async () => ({ events: [], findings: [], text: '' }) };
    return {
      looks,
      rows,
      fail: (error: Error | undefined) => {
        broken = error;
      },
      waiter: new Waiter(database as unknown as Database, explainer),
    };
  };
  const ids = Array.from({ length: 50 }, (_, n) => `${id.slice(0, -2)}${10 + n}`);

  beforeEach(() => {
    jest.useFakeTimers();
  });
  afterEach(() => {
    jest.useRealTimers();
  });

  it('share one look, which asks for each event once; while nobody waits there is none', async () => {
    const { looks, rows, waiter } = outbox();
    for (const one of ids) rows.set(one, row({ id: one, open }));
    const waits = Promise.all([...ids, ...ids].map((one) => waiter.wait(one)));
    await jest.advanceTimersByTimeAsync(10_000);
    expect(looks.every((asked) => asked.length === 50)).toBe(true);
    // 20, 30, 45 … 1,000 ms apart, and then a second.
    expect(looks.length).toBeGreaterThan(10);
    expect(looks.length).toBeLessThan(25);
    for (const one of ids) rows.set(one, row({ id: one, ended: [done] }));
    await jest.advanceTimersByTimeAsync(1_000);
    expect(await waits).toHaveLength(100);
    const before = looks.length;
    await jest.advanceTimersByTimeAsync(60_000);
    expect(looks.length).toBe(before);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('go on when one of them ends, is aborted, or begins', async () => {
    const { looks, rows, waiter } = outbox();
    rows.set(id, row({ open }));
    const aborter = new AbortController();
    const aborted = expect(waiter.wait(id, { signal: aborter.signal })).rejects.toThrow('enough');
    const other = waiter.wait(id);
    await jest.advanceTimersByTimeAsync(5_000);
    aborter.abort(new Error('enough'));
    await aborted;
    const before = looks.length;
    const third = waiter.wait(id);
    await jest.advanceTimersByTimeAsync(1);
    expect(looks.length).toBe(before + 1);
    rows.set(id, row({ ended: [done] }));
    await jest.advanceTimersByTimeAsync(1_000);
    expect(await Promise.all([other, third])).toHaveLength(2);
    expect(jest.getTimerCount()).toBe(0);
  });

  it('outlive a database that is away, and not one that refuses', async () => {
    const { rows, fail, waiter } = outbox();
    const wait = waiter.wait(id);
    fail(new Error('Connection terminated unexpectedly'));
    await jest.advanceTimersByTimeAsync(10_000);
    rows.set(id, row({ ended: [done] }));
    fail(undefined);
    await jest.advanceTimersByTimeAsync(1_000);
    expect(await wait).toHaveLength(1);
    fail(Object.assign(new Error('permission denied'), { code: '42501' }));
    const refused = expect(waiter.wait(id)).rejects.toThrow('permission denied');
    await jest.advanceTimersByTimeAsync(100);
    await refused;
  });

  it('do not look in the context of whoever waits first', async () => {
    const { rows, waiter, looks } = outbox();
    const context = new AsyncLocalStorage<string>();
    const stores: unknown[] = [];
    looks.push = (...asked) => stores.push(context.getStore()) + asked.length;
    rows.set(id, row({ ended: [done] }));
    const wait = context.run('a request', () => waiter.wait(id));
    await jest.advanceTimersByTimeAsync(100);
    expect(await wait).toHaveLength(1);
    expect(stores).toEqual([undefined]);
  });

  it('time out when the database is away, and say why', async () => {
    const { fail, waiter } = outbox();
    fail(new Error('Connection terminated unexpectedly'));
    const wait = expect(waiter.wait(id, { timeout: '1s' })).rejects.toMatchObject({
      ...{ code: 'OUTBOX_WAIT_TIMEOUT', eventId: id, timeoutMs: 1_000, open: [] },
      cause: expect.objectContaining({ message: 'Connection terminated unexpectedly' }),
    });
    await jest.advanceTimersByTimeAsync(2_000);
    await wait;
  });
});
