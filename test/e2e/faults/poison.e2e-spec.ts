import { eventually } from '../../support/eventually.js';
import type { Task } from '../../support/worker-main.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { FaultSite } from './fault-site.js';

/** Not run again with this many (design, section 2). */
const deadFrom = 6;
/** A dozen processes, one after the other; on a busy machine each takes its time to start. */
const supervisedMs = 180_000;
/** Alone in its process with this many. */
const aloneFrom = 3;

describe('an event that kills the process ends too', () => {
  let site: FaultSite;
  let worker: WorkerProcess | undefined;

  beforeEach(async () => {
    site = await FaultSite.open();
    worker = await site.worker();
  });

  afterEach(() => site?.close());

  const dead = () =>
    site.database.query<{ event_id: string; error: string }>(
      'SELECT event_id, error FROM outbox.dead_letters ORDER BY event_id',
    );

  /** Starts a worker whenever the last one is gone, as a supervisor would, until `count` letters are dead; returns how many died. */
  async function supervise(count: number): Promise<number> {
    let deaths = 0;
    await eventually(
      `${count} dead letters`,
      async () => {
        if (worker && !worker.running) {
          deaths += 1;
          worker = await site.worker();
        }
        return (await dead()).length === count;
      },
      supervisedMs,
    );
    return deaths;
  }

  it(
    'is run six times, at the end alone, and becomes a dead letter; what was fetched with it is handled',
    async () => {
      // The poison takes its time, so that the neighbours run beside it; those behind wait in memory and crash with it, too.
      const tasks: Task[] = [{ ms: 300, crash: true }, ...Array.from({ length: 8 }, () => ({ ms: 500 }))];
      const [poison = '', ...neighbours] = await site.ask(...tasks);
      expect(await supervise(1)).toBe(deadFrom);
      await site.handledOnce(neighbours);
      expect(await dead()).toEqual([
        { event_id: poison, error: expect.stringContaining(`was interrupted ${deadFrom} times`) },
      ]);
      expect((await dead())[0]?.error).toMatch(/^InterruptedError/);
      const { [poison]: charged, ...innocent } = await site.interruptions();
      expect(charged).toBe(deadFrom);
      for (const [id, n] of Object.entries(innocent)) expect([id, n <= aloneFrom]).toEqual([id, true]);
      expect((await site.runs())[poison]).toBe(deadFrom);
      expect(await alone(poison)).toBe(true);
      expect(await site.attemptsCharged()).toBe(1); // the dead letter's own line
    },
    2 * supervisedMs,
  );

  it(
    'two of them beside innocent neighbours: both end, and the neighbours are handled',
    async () => {
      const tasks: Task[] = [
        { ms: 300, crash: true },
        { ms: 350, crash: true },
        ...Array.from({ length: 6 }, () => ({ ms: 500 })),
      ];
      const [one = '', two = '', ...neighbours] = await site.ask(...tasks);
      // Beside each other they share the first three deaths at best; then each dies alone.
      expect(await supervise(2)).toBeGreaterThanOrEqual(2 * deadFrom - aloneFrom);
      await site.handledOnce(neighbours);
      expect((await dead()).map((row) => row.event_id).sort()).toEqual([one, two].sort());
      const { [one]: first, [two]: second, ...innocent } = await site.interruptions();
      expect([first, second]).toEqual([deadFrom, deadFrom]);
      for (const [id, n] of Object.entries(innocent)) expect([id, n <= aloneFrom]).toEqual([id, true]);
    },
    2 * supervisedMs,
  );

  /** Whether, once it had three interruptions, nothing else began while it ran. */
  async function alone(poison: string): Promise<boolean> {
    const [row] = await site.database.query<{ beside: number }>(
      `WITH p AS (SELECT at, pid, row_number() OVER (ORDER BY at) AS n FROM runs WHERE event_id = $1)
       SELECT count(*)::int AS beside FROM p JOIN runs r ON r.pid = p.pid AND r.event_id <> $1 AND r.at >= p.at WHERE p.n > $2`,
      [poison, aloneFrom],
    );
    return row?.beside === 0;
  }
});

describe('an event whose connection is ended each time it runs', () => {
  it('becomes a dead letter as well, though the process lives', async () => {
    const site = await FaultSite.open();
    try {
      await site.database.query(
        `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_in_transaction_session_timeout = 1200', current_database()); END $$`,
      );
      const worker = await site.worker();
      const [poison = '', ...neighbours] = await site.ask({ ms: 3_000 }, {}, {}, {});
      await eventually(
        'the dead letter',
        () => site.database.value('SELECT count(*)::int FROM outbox.dead_letters'),
        60_000,
      );
      expect(worker.running).toBe(true);
      expect(await site.interruptions()).toEqual({ [poison]: deadFrom });
      expect((await site.runs())[poison]).toBe(deadFrom);
      await site.handledOnce(neighbours);
    } finally {
      await site.close();
    }
  });
});
