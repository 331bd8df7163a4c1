import { eventually } from '../../support/eventually.js';
import type { Task } from '../../support/worker-main.js';
import { FaultSite } from './fault-site.js';
import { Supervisor, supervisedMs } from './supervisor.js';

/** Not run again with this many (design, section 2). */
const deadFrom = 6;
/** Alone in its process with this many. */
const aloneFrom = 3;

describe('an event that kills the process ends too', () => {
  let site: FaultSite;
  let supervisor: Supervisor;

  beforeEach(async () => {
    site = await FaultSite.open();
    supervisor = await Supervisor.over(site);
  });

  afterEach(() => site?.close());

  it(
    'is run six times, at the end alone, and becomes a dead letter; what was fetched with it is handled',
    async () => {
      // The poison takes its time, so that the neighbours run beside it; those behind wait in memory and crash with it, too.
      const tasks: Task[] = [{ ms: 300, crash: true }, ...Array.from({ length: 8 }, () => ({ ms: 500 }))];
      const [poison = '', ...neighbours] = await site.ask(...tasks);
      expect(await supervisor.untilDead(1)).toBe(deadFrom);
      await site.handledOnce(neighbours);
      expect(await supervisor.dead()).toEqual([
        { event_id: poison, error: expect.stringContaining(`was interrupted ${deadFrom} times`) },
      ]);
      expect((await supervisor.dead())[0]?.error).toMatch(/^InterruptedError/);
      const { [poison]: charged, ...innocent } = await site.interruptions();
      expect(charged).toBe(deadFrom);
      for (const [id, n] of Object.entries(innocent)) expect([id, n <= aloneFrom]).toEqual([id, true]);
      expect((await site.runs())[poison]).toBe(deadFrom);
      expect(await supervisor.ranAlone(poison, aloneFrom)).toBe(true);
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
      expect(await supervisor.untilDead(2)).toBeGreaterThanOrEqual(2 * deadFrom - aloneFrom);
      await site.handledOnce(neighbours);
      expect((await supervisor.dead()).map((row) => row.event_id).sort()).toEqual([one, two].sort());
      const { [one]: first, [two]: second, ...innocent } = await site.interruptions();
      expect([first, second]).toEqual([deadFrom, deadFrom]);
      for (const [id, n] of Object.entries(innocent)) expect([id, n <= aloneFrom]).toEqual([id, true]);
    },
    2 * supervisedMs,
  );
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
