import { setTimeout as pause } from 'node:timers/promises';
import type { JobTask } from '../../support/job-main.js';
import { ServerProcess } from '../../support/server-process.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { JobSite } from './job-site.js';

/** The loops wait up to 10 s, within 10 %, for a server that is away; then come a look and the 2.5 s of a free lock. */
const backMs = 40_000;
/** The loops wait as long again as they have waited, up to 10 s; then all look, and find the lock free or not for 2.5 s. */
const allAreBackMs = (awayMs: number) => Math.min(10_000, awayMs + 5_500);
const hears: JobTask = { name: 'test.hears', schedule: '* * * * * *' };
const deaf: JobTask = { name: 'test.deaf', schedule: '* * * * * *' };

describe('a server that goes away while a job runs', () => {
  let server: ServerProcess;
  let site: JobSite;
  let up = true;

  beforeAll(async () => {
    server = await ServerProcess.start();
  });

  afterAll(() => server?.stop());

  beforeEach(async () => {
    site = await JobSite.open(server.url);
  });

  afterEach(async () => {
    if (!up) await resume();
    await site?.close();
  });

  const stop = async (how: 'pause' | 'crash') => {
    up = false;
    await server[how]();
  };
  const resume = async () => {
    await server.resume();
    up = true;
  };

  /**
   * Three processes. The first one runs the first slots of two jobs until the test says go: one method ends when it is
   * asked to, the other goes on. The methods of the others are quick.
   */
  async function running(): Promise<WorkerProcess[]> {
    const first = await site.process([
      { ...hears, hold: true },
      { ...deaf, hold: true, deaf: true },
    ]);
    await Promise.all([hears, deaf].map(({ name }) => site.run(name, 1)));
    const quick = [hears, deaf].map((task) => ({ ...task, ms: 20 }));
    return [first, ...(await Promise.all([site.process(quick), site.process(quick)]))];
  }

  async function goesOn(processes: readonly WorkerProcess[]): Promise<void> {
    await Promise.all([hears, deaf].map(({ name }) => site.ticks(name, 4, backMs)));
    expect(processes.every((one) => one.running)).toBe(true);
    expect(await site.overlaps()).toEqual([]);
  }

  it.each([
    ['stopped and started', 'pause', 500],
    ['shut down at once, as in a crash, and started', 'crash', 500],
    ['away for longer than the loops wait', 'pause', 12_000],
  ] as const)(
    '%s: who ends as it is asked to is taken up, beside who goes on nobody runs, and the next slots run',
    async (_, how, awayMs) => {
      const processes = await running();
      await stop(how);
      await pause(awayMs);
      await resume();
      await pause(allAreBackMs(awayMs));
      processes[0]?.go();
      await goesOn(processes);
      const [cut, again] = await site.runs(hears.name);
      expect(cut).toMatchObject({ how: 'threw', reason: 'JobLockLostError' });
      expect(again).toMatchObject({ slot: cut?.slot, attempt: 2 });
      const [whole, next] = await site.runs(deaf.name);
      expect(whole).toMatchObject({ how: 'returned', reason: 'JobLockLostError' });
      expect(next?.attempt).toBe(1);
      expect(next?.slot.getTime()).toBeGreaterThan(whole?.slot.getTime() ?? 0);
    },
  );

  it('a method that ends while it is away: that is recorded when it is back, and nobody runs it again', async () => {
    const processes = await running();
    await stop('pause');
    processes[0]?.go();
    await pause(3_000);
    await resume();
    await goesOn(processes);
    const [whole, next] = await site.runs(deaf.name);
    expect(whole).toMatchObject({ how: 'returned', reason: 'JobLockLostError' });
    expect(next?.slot.getTime()).toBeGreaterThan(whole?.slot.getTime() ?? 0);
  });

  it('and that comes and goes: never two at a time, and the jobs go on', async () => {
    const processes = await running();
    for (let n = 0; n < 4; n++) {
      await stop(n % 2 ? 'pause' : 'crash');
      await pause(200);
      await resume();
      await pause(700);
    }
    await pause(allAreBackMs(500));
    processes[0]?.go();
    await goesOn(processes);
  });
});
