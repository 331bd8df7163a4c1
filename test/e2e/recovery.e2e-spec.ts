import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '../support/eventually.js';
import { ServerProcess } from '../support/server-process.js';
import { FaultSite } from './faults/fault-site.js';

describe('a server that recovers from the crash of one of its own processes', () => {
  let server: ServerProcess;
  let site: FaultSite;

  beforeAll(async () => {
    server = await ServerProcess.start();
  });
  afterAll(() => server?.stop());
  beforeEach(async () => {
    site = await FaultSite.open(server.url);
  });
  afterEach(() => site?.close());

  const leased = () =>
    site.database.value<number>('SELECT count(*)::int FROM outbox.deliveries WHERE lease IS NOT NULL');

  /** SIGKILL of one backend: the postmaster ends all others (57P02) and recovers, and its start time stays. */
  async function crash(): Promise<void> {
    const pid = await site.database.value<number>('SELECT pg_backend_pid()');
    process.kill(pid, 'SIGKILL');
    await eventually('the server is back', () => site.database.value('SELECT 1'), 20_000);
  }

  it('charges nothing that only waited in the memory of a worker that comes back later', async () => {
    const slow = await site.worker({ HOLD: 'on' });
    const held = await site.ask(...Array.from({ length: 24 }, () => ({ hold: true })));
    await eventually('24 are leased to it', async () => {
      const started = slow.reports.filter((report) => report.kind === 'started').length;
      return started === 4 && (await leased()) === 24;
    });
    await site.worker();
    slow.signal('SIGSTOP');
    await crash();
    await eventually('the other has handled them', async () => (await leased()) === 0, 30_000);
    await pause(500);
    const charged = await site.interruptions();
    slow.signal('SIGCONT');
    slow.go();
    await site.handledOnce(held);
    expect(await site.attemptsCharged()).toBe(0);
    const ran = new Set(slow.reports.filter((r) => r.kind === 'started').map((r) => r.eventId));
    expect(Object.keys(charged).filter((id) => !ran.has(id))).toEqual([]);
  });

  it('under load with several workers: nothing is lost, nothing done twice', async () => {
    const workers = [await site.worker(), await site.worker()];
    const committed: string[] = [];
    let going = true;
    const load = Promise.all(
      Array.from({ length: 3 }, async () => {
        while (going)
          try {
            committed.push(await site.askOne({ ms: 5 }));
          } catch {
            await pause(50);
          }
      }),
    );
    for (let n = 0; n < 3; n++) {
      const before = committed.length;
      await eventually('there is load', () => committed.length > before + 50, 30_000);
      await crash();
    }
    going = false;
    await load;
    const stored = (await site.database.query<{ id: string }>('SELECT id FROM outbox.events')).map((row) => row.id);
    expect(stored).toEqual(expect.arrayContaining(committed));
    await site.handledOnce(stored);
    expect(await site.attemptsCharged()).toBe(0);
    for (const worker of workers) expect(worker.running).toBe(true);
  });
});
