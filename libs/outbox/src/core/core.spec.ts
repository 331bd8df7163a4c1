import { defaultLadderMs, jittered, ladderStep, loopBackoff } from './backoff.js';
import { databaseTrouble } from './database-errors.js';
import { parseDuration } from './duration.js';
import { errorText } from './error-text.js';
import { Floor } from './floor.js';
import { didYouMean } from './nearest.js';
import { ThrottledLog } from './throttled-log.js';
import { WakeSignal } from './wake-signal.js';

describe('durations', () => {
  it.each([
    ['500ms', 500],
    ['30s', 30_000],
    ['10m', 600_000],
    ['1.5h', 5_400_000],
    ['7d', 604_800_000],
    ['2w', 1_209_600_000],
  ])('%s', (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  it.each(['', '10', '10 s', 's', '-1s', '1sec', '1e3s', 'NaNs', 10, null, undefined, `${'9'.repeat(50)}s`])(
    '%p is none',
    (value) => {
      expect(parseDuration(value)).toBeUndefined();
    },
  );
});

describe('the ladder', () => {
  it('stays on its last step, within ten percent', () => {
    expect(ladderStep([1, 2, 3], 2)).toBe(2);
    expect(ladderStep([1, 2, 3], 99)).toBe(3);
    expect([jittered(1_000, () => 0), jittered(1_000, () => 0.5), jittered(1_000, () => 1)]).toEqual([
      900, 1_000, 1_100,
    ]);
    expect(defaultLadderMs).toHaveLength(9);
  });

  it('of a loop doubles up to ten seconds', () => {
    expect(loopBackoff(1)).toBeLessThanOrEqual(110);
    expect(loopBackoff(1_000)).toBeLessThanOrEqual(11_000);
  });
});

describe('database errors', () => {
  it.each([
    ['57P01', 'outage'],
    ['57P02', 'outage'],
    ['57P03', 'outage'],
    ['08006', 'outage'],
    ['53300', 'outage'],
    ['25006', 'outage'],
    ['ECONNREFUSED', 'outage'],
    ['55P03', 'busy'],
    ['40001', 'conflict'],
    ['40P01', 'conflict'],
    ['23505', 'other'],
  ])('%s is %s, also inside a TypeORM error', (code, trouble) => {
    expect(databaseTrouble(Object.assign(new Error('x'), { code }))).toBe(trouble);
    expect(databaseTrouble({ driverError: { code } })).toBe(trouble);
  });

  it('08P01 is an outage from a pooler, which gives up with it, and a mistake in a query from the server', () => {
    expect(databaseTrouble({ code: '08P01', severity: 'FATAL' })).toBe('outage');
    expect(databaseTrouble({ code: '08P01', severity: 'ERROR' })).toBe('other');
    expect(databaseTrouble({ driverError: { code: '08P01', severity: 'FATAL' } })).toBe('outage');
  });

  it('texts without a code are known', () => {
    expect(databaseTrouble(new Error('Connection terminated unexpectedly'))).toBe('outage');
    expect(databaseTrouble(new Error('anything else'))).toBe('other');
  });
});

describe('error texts can always be stored', () => {
  it('without NUL and lone surrogates', () => {
    const text = errorText(new Error('a\u0000b\ud800'));
    expect(text).not.toContain('\u0000');
    expect(text.isWellFormed()).toBe(true);
  });

  it('cut at 8 KiB of UTF-8, between characters', () => {
    const text = errorText('ä'.repeat(10_000));
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(8 * 1024);
    expect(text.endsWith('ä…')).toBe(true);
  });

  it('of anything that can be thrown', () => {
    const hostile = new Proxy(
      {},
      {
        get: () => {
          throw new Error('no');
        },
      },
    );
    for (const thrown of [undefined, null, 1n, Symbol('s'), hostile, { a: 1 }])
      expect(errorText(thrown)).toEqual(expect.any(String));
    expect(errorText(new Error('outer', { cause: new Error('inner') }))).toContain('inner');
  });
});

describe('the floor of a poll', () => {
  it('reads from the start first, then from shortly before the poll before, and every five seconds from the start', () => {
    let now = 0;
    const floor = new Floor(5_000, () => now);
    expect(floor.next()).toEqual({ floor: '-infinity', reachMs: 0, full: true });
    floor.passed('then', true);
    expect(floor.next()).toEqual({ floor: 'then', reachMs: 0, full: false });
    now = 1_000;
    floor.passed('later', false);
    expect(floor.next()).toEqual({ floor: 'later', reachMs: 0, full: false });
    now = 5_600;
    expect(floor.next().full).toBe(true);
    floor.reset();
    expect(floor.next().full).toBe(true);
  });

  it('reaches back once, as far as the oldest of what was just committed', () => {
    const floor = new Floor();
    floor.passed('then', true);
    floor.reach(3_000);
    floor.reach(200);
    expect(floor.next()).toEqual({ floor: 'then', reachMs: 3_000, full: false });
    expect(floor.next()).toMatchObject({ reachMs: 0 });
  });
});

describe('a wake signal', () => {
  it('keeps a nudge that comes while nobody waits', async () => {
    const signal = new WakeSignal();
    signal.nudge();
    await signal.wait(60_000, new AbortController().signal);
  });

  it('ends at an abort, and leaves no listener', async () => {
    const aborter = new AbortController();
    const signal = new WakeSignal();
    const waiting = signal.wait(60_000, aborter.signal);
    aborter.abort();
    await waiting;
    await signal.wait(60_000, aborter.signal);
  });
});

describe('a throttled log', () => {
  it('says one line a second for each key and counts what it held back', () => {
    let now = 0;
    const lines: string[] = [];
    const log = new ThrottledLog(
      { log: () => {}, warn: (line) => lines.push(line), error: () => {} },
      1_000,
      () => now,
    );
    for (let i = 0; i < 5; i++) log.warn('a', 'x');
    now = 1_500;
    log.warn('a', 'x');
    log.warn('b', 'y');
    expect(lines).toEqual(['x', 'x (and 4 more like it)', 'y']);
  });
});

describe('the nearest name', () => {
  it('is offered when it is near', () => {
    expect(didYouMean('billing.invoice.payed', ['billing.invoice.paid', 'crm.contact.merged'])).toContain(
      "'billing.invoice.paid'",
    );
    expect(didYouMean('zzz', ['billing.invoice.paid'])).toBe('');
    expect(didYouMean('zzz', [])).toBe('');
  });
});
