import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '../../support/eventually.js';
import type { JobTask } from '../../support/job-main.js';
import { JobSite } from './job-site.js';

/** A look every 3 s, and 2.5 s for which the lock must have been free; the bound leaves room for a busy machine. */
const takenUpMs = 15_000;
/** Longer than any look, so that everybody has had the time to do what they should not. */
const looksMs = 4_000;
const tick: JobTask = { name: 'test.tick', schedule: '* * * * * *', ms: 20 };
/** One that rests for a while between its slots. */
const calm: JobTask = { ...tick, schedule: '*/3 * * * * *' };

describe('a process that dies or stops while its job runs', () => {
  let site: JobSite;

  beforeEach(async () => {
    site = await JobSite.open();
  });

  afterEach(() => site?.close());

  it('killed: nobody runs the job beside it, its slot is taken up by another, and the next ones run', async () => {
    const first = await site.process([{ ...tick, hold: true }]);
    const cut = await site.run('test.tick', 1);
    const second = await site.process([tick]);
    await pause(looksMs);
    expect(await site.runs('test.tick')).toHaveLength(1);
    await first.kill();
    const killed = performance.now();
    const again = await site.run('test.tick', 2);
    expect(performance.now() - killed).toBeLessThan(takenUpMs);
    expect(again).toMatchObject({ slot: cut.slot, attempt: 2, pid: second.pid });
    await site.ticks('test.tick', 3);
    expect(
      second.said({ kind: 'log', text: /was left unfinished by attempt 1; it is taken up again here, attempt 2/ }),
    ).toBe(true);
  });

  /** Until a slot is run and over, and a while before the one after it. */
  const betweenSlots = () => site.rests('test.tick', 3);

  it('a slot that kills every process ends after 1 + retries attempts, with an error line, and the next ones run', async () => {
    const poison = { ...tick, poison: true, options: { retries: 1 } };
    const processes = await Promise.all([poison, poison, poison].map((task) => site.process([task])));
    await eventually('one is left', () => processes.filter((one) => one.running).length === 1, 30_000);
    const [survivor] = processes.filter((one) => one.running);
    await site.ticks('test.tick', 3);
    const [first, second, ...later] = await site.runs('test.tick');
    expect([first?.attempt, second?.attempt]).toEqual([1, 2]);
    expect(second?.slot).toEqual(first?.slot);
    for (const { slot, attempt } of later) expect([slot > (first?.slot ?? slot), attempt]).toEqual([true, 1]);
    const said = survivor?.reports.filter(({ text }) => /is given up for slot .* attempt 2 of 2/.test(text ?? ''));
    expect(said).toHaveLength(1);
  });

  it('killed between two slots: another goes on with the next', async () => {
    const first = await site.process([calm]);
    await site.process([calm]);
    await betweenSlots();
    await first.kill();
    await site.ticks('test.tick', 3);
    const { runs, distinct } = await site.figures('test.tick');
    expect(runs).toBe(distinct);
  });

  it('paused for several slots: nobody runs the job meanwhile, and when it wakes it ends its run and goes on', async () => {
    const first = await site.process([{ ...calm, hold: true }]);
    const held = await site.run('test.tick', 1);
    const second = await site.process([calm]);
    first.signal('SIGSTOP');
    await pause(looksMs);
    expect(await site.runs('test.tick')).toHaveLength(1);
    first.signal('SIGCONT');
    first.go();
    await site.ticks('test.tick', 2);
    await betweenSlots();
    await second.kill();
    await site.ticks('test.tick', 2);
    const [run] = await site.runs('test.tick');
    expect(run).toMatchObject({ slot: held.slot, attempt: 1, how: 'returned', reason: null });
    const { runs, distinct } = await site.figures('test.tick');
    expect(runs).toBe(distinct);
  });

  it('paused between two slots: others go on, and when it wakes no slot is run twice', async () => {
    const first = await site.process([calm]);
    await site.process([calm]);
    await betweenSlots();
    first.signal('SIGSTOP');
    await site.ticks('test.tick', 3);
    first.signal('SIGCONT');
    await site.ticks('test.tick', 3);
    const { runs, distinct } = await site.figures('test.tick');
    expect(runs).toBe(distinct);
  });

  describe('SIGTERM', () => {
    it('a method that ends within the drain has run its slot, and the process exits with 0', async () => {
      const first = await site.process([{ ...tick, ms: 1_500 }]);
      const run = await site.run('test.tick', 1);
      expect(await first.stop()).toBe(0);
      await site.process([tick]);
      await site.ticks('test.tick', 2);
      const runs = await site.runs('test.tick');
      expect(runs.filter(({ slot }) => slot.getTime() === run.slot.getTime())).toHaveLength(1);
      expect(runs[0]).toMatchObject({ attempt: 1, how: 'returned', reason: null });
    });

    it.each([
      ['that ends when it is asked to', false],
      ['that does not hear', true],
    ])('a method %s is taken up elsewhere, uncharged, and the process exits with 0', async (_, deaf) => {
      // The rest of the app takes its time to close: until the process is gone, the one that does not hear runs on.
      const env = { DRAIN: '500ms', CLOSE_MS: deaf ? '8000' : '0' };
      const first = await site.process([{ ...tick, hold: true, deaf, options: { retries: 0 } }], env);
      const run = await site.run('test.tick', 1);
      const second = await site.process([{ ...tick, options: { retries: 0 } }]);
      expect(await first.stop()).toBe(0);
      const again = await site.run('test.tick', 2);
      expect(again).toMatchObject({ slot: run.slot, attempt: 1, pid: second.pid });
      await site.ticks('test.tick', 2);
      const [ended] = await site.runs('test.tick');
      expect(ended).toMatchObject(deaf ? { how: 'killed' } : { how: 'threw', reason: 'JobStoppedError' });
    });
  });
});
