import type { JobContext } from 'nestjs-outbox';
import { eventually, gate, reaches } from '../support/eventually.js';
import { overOf, retryNow, runsOf, stateOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';

/** Notes what every attempt was given, and throws what the test says. */
function failing(times: number, error: unknown = new Error('on purpose')) {
  const attempts: Pick<JobContext, 'attempt' | 'isLastAttempt' | 'slot'>[] = [];
  const run = ({ attempt, isLastAttempt, slot }: JobContext): void => {
    attempts.push({ attempt, isLastAttempt, slot });
    if (attempts.length <= times) throw error;
  };
  return { attempts, run };
}

const seconds = (from: Date | null, to: Date | null): number => (Number(to) - Number(from)) / 1_000;

describe('a job that throws', () => {
  const stage = useStage();

  it('is run again with the same slot, slower each time; after its retries it is over', async () => {
    const { attempts, run } = failing(9);
    const app = await stage.boot({ providers: [job('test.fails', yearly, run, { retries: 2 })] });
    await tickNow(stage, app, 'test.fails');
    const first = await retryNow(stage, app, 'test.fails');
    await eventually('the second attempt', () => attempts.length === 2);
    const second = await retryNow(stage, app, 'test.fails');
    const over = await overOf(stage, 'test.fails');
    const slot = attempts[0]?.slot;
    expect(slot?.getUTCMonth()).toBe(0);
    expect(attempts).toEqual([
      { attempt: 1, isLastAttempt: false, slot },
      { attempt: 2, isLastAttempt: false, slot },
      { attempt: 3, isLastAttempt: true, slot },
    ]);
    for (const [state, least, most] of [[first, 1.8, 2.2] as const, [second, 9, 11] as const]) {
      expect(state).toMatchObject({ outcome: 'failed', running_slot: slot });
      expect(seconds(state.finished_at, state.retry_at)).toBeGreaterThan(least - 0.1);
      expect(seconds(state.finished_at, state.retry_at)).toBeLessThan(most + 0.1);
    }
    expect(over).toMatchObject({ outcome: 'failed', attempt: 3, retry_at: null, last_slot: slot });
    expect(over.last_error).toMatch(/^Error: on purpose\n.*at /s);
    const runs = await runsOf(stage, 'test.fails');
    expect(runs.map(({ attempt, outcome }) => ({ attempt, outcome }))).toEqual(
      [1, 2, 3].map((attempt) => ({ attempt, outcome: 'failed' })),
    );
    for (const { error, finished_at } of runs) {
      expect(error).toContain('on purpose');
      expect(finished_at).not.toBeNull();
    }
    // One line a second at most.
    expect(
      app.log.matching(/'test\.fails' failed at slot .*attempt 1 of 3, again in \d+ ms\): on purpose/),
    ).toHaveLength(1);
  });

  it('and does not the next time: done, and nothing is left of the error but its run', async () => {
    const { run } = failing(1);
    const app = await stage.boot({ providers: [job('test.once', yearly, run)] });
    await tickNow(stage, app, 'test.once');
    await retryNow(stage, app, 'test.once');
    const over = await eventually('it is done', async () => {
      const state = await stateOf(stage, 'test.once');
      return state?.outcome === 'done' && state;
    });
    expect(over).toMatchObject({ running_slot: null, retry_at: null, last_error: null, attempt: 2 });
    const runs = await runsOf(stage, 'test.once');
    expect(runs.map(({ attempt, outcome, error }) => [attempt, outcome, error === null])).toEqual([
      [1, 'failed', false],
      [2, 'done', true],
    ]);
  });

  it('is run again by itself, two seconds later and no more than a moment late', async () => {
    const jobs = Array.from({ length: 20 }, (_, n) => ({ name: `test.itself-${n}`, began: [] as number[] }));
    const app = await stage.boot({
      providers: jobs.map(({ name, began }) =>
        job(name, yearly, () => {
          if (began.push(performance.now()) === 1) throw new Error('once');
        }),
      ),
    });
    for (const { name } of jobs) await tickNow(stage, app, name);
    await reaches('runs', 2 * jobs.length, async () => jobs.reduce((sum, { began }) => sum + began.length, 0));
    // What a machine takes for all of them once, it may take again.
    const firsts = jobs.map(({ began }) => began[0] ?? 0);
    const once = Math.max(...firsts) - Math.min(...firsts);
    for (const { began } of jobs) {
      const after = (began[1] ?? 0) - (began[0] ?? 0);
      expect(after).toBeGreaterThan(1_750);
      expect(after).toBeLessThan(4_000 + 2 * once);
    }
  });

  it('is not run again when it has no retries', async () => {
    const { attempts, run } = failing(9);
    const app = await stage.boot({ providers: [job('test.none', yearly, run, { retries: 0 })] });
    await tickNow(stage, app, 'test.none');
    expect(await overOf(stage, 'test.none')).toMatchObject({ outcome: 'failed', attempt: 1, retry_at: null });
    expect(attempts).toMatchObject([{ attempt: 1, isLastAttempt: true }]);
  });

  it('gives way to its next slot', async () => {
    const { attempts, run } = failing(4);
    await stage.boot({ providers: [job('test.every-second', { every: '1s' }, run)] });
    // Each retry would come after two seconds.
    await eventually('it has worked once', async () => (await stateOf(stage, 'test.every-second'))?.outcome === 'done');
    expect(attempts.slice(0, 5).map(({ attempt }) => attempt)).toEqual([1, 1, 1, 1, 1]);
    const slots = attempts.map(({ slot }) => slot.getTime());
    expect(slots).toEqual([...new Set(slots)].toSorted((a, b) => a - b));
  });

  it('disturbs no other job', async () => {
    const { run } = failing(999);
    const held = gate();
    let ticks = 0;
    await stage.boot({
      providers: [
        job('test.broken', { every: '100ms' }, run),
        job('test.hangs', { every: '100ms' }, () => held.passed),
        job('test.healthy', { every: '100ms' }, () => (ticks += 1)),
      ],
    });
    await eventually('ten ticks of the healthy one', () => ticks >= 10);
    held.open();
  });
});

/** Things that were thrown in earnest, and others; what must be in the text that is stored. */
const thrown: Record<string, { error: unknown; stored: RegExp }> = {
  'a NUL': { error: new Error('before\u0000after'), stored: /before␀after/ },
  'half a surrogate pair': { error: new Error('\ud800 alone'), stored: /alone/ },
  'a megabyte': { error: new Error('m'.repeat(1_000_000)), stored: /^Error: m{8000,}…$/ },
  'a megabyte of text': { error: 'ä'.repeat(1_000_000), stored: /^ä{4000,}…$/ },
  nothing: { error: undefined, stored: /thrown: undefined/ },
  'an object': { error: { status: 503 }, stored: /\{"status":503\}/ },
  'an empty text': { error: '', stored: /^$/ },
  'an error whose message is a symbol': {
    error: Object.assign(new Error('x'), { message: Symbol('odd') }),
    stored: /./,
  },
  'an error whose message is an object without a prototype': {
    error: Object.assign(new Error('x'), { message: Object.create(null) }),
    stored: /./,
  },
  'an error that cannot be read': {
    error: new Proxy(new Error('x'), {
      get: () => {
        throw new Error('no');
      },
    }),
    stored: /cannot be read/,
  },
  'an error with a cause': {
    error: new Error('outer', { cause: new Error('inner') }),
    stored: /outer.*caused by Error: inner/s,
  },
};

describe('whatever a job throws', () => {
  const stage = useStage();

  it('is stored, cut to 8 KiB, and the process goes on', async () => {
    const all = Object.entries(thrown).map(([what, { error, stored }], n) => ({
      what,
      error,
      stored,
      name: `test.t${n}`,
    }));
    const app = await stage.boot({
      providers: all.map(({ name, error }) => job(name, yearly, () => Promise.reject(error), { retries: 0 })),
    });
    for (const { name } of all) await tickNow(stage, app, name);
    for (const { name, what, stored } of all) {
      const state = await overOf(stage, name).catch((error) => {
        throw new Error(`${what}: ${error}`);
      });
      const [run] = await runsOf(stage, name);
      expect({ what, ...state }).toMatchObject({ what, outcome: 'failed', last_error: expect.stringMatching(stored) });
      expect(run).toMatchObject({ outcome: 'failed', error: state.last_error });
      expect(Buffer.byteLength(state.last_error ?? '')).toBeLessThanOrEqual(8_192);
    }
    // Nor does a line of the log run to megabytes.
    for (const line of app.log.lines) expect(line.length).toBeLessThan(20_000);
  });
});
