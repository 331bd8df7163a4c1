import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import type { Task } from '../../support/worker-main.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { FaultSite } from '../faults/fault-site.js';
import { Broker } from './broker.js';

const deadFrom = 6;
const aloneFrom = 3;

describeWithNats('an event that kills the process ends over JetStream, too', () => {
  let broker: Broker;
  let site: FaultSite;
  let worker: WorkerProcess | undefined;

  beforeEach(async () => {
    broker = await Broker.open('2s');
    site = await FaultSite.open(undefined, broker.env);
    worker = await site.worker();
  });

  afterEach(() => broker?.close(site));

  const dead = () =>
    site.database.query<{ event_id: string; error: string }>('SELECT event_id, error FROM outbox.dead_letters');

  /** Starts a worker whenever the last one is gone, as a supervisor would, until there is a dead letter; returns how many died. */
  async function supervise(): Promise<number> {
    let deaths = 0;
    await eventually(
      'the dead letter',
      async () => {
        if (worker && !worker.running) {
          deaths += 1;
          worker = await site.worker();
        }
        return (await dead()).length === 1;
      },
      110_000,
    );
    return deaths;
  }

  it('by process.exit: it is run six times, from the third interruption on alone, and becomes a dead letter', async () => {
    // The poison takes its time, so that neighbours run beside it; those behind wait in memory and crash with it, too.
    const tasks: Task[] = [{ ms: 300, exit: true }, ...Array.from({ length: 7 }, () => ({ ms: 500 }))];
    const [poison = '', ...neighbours] = await site.ask(...tasks);
    expect(await supervise()).toBe(deadFrom);
    await site.handledOnce(neighbours);
    expect(await dead()).toEqual([
      { event_id: poison, error: expect.stringMatching(`^InterruptedError.*was interrupted ${deadFrom} times`) },
    ]);
    const { [poison]: charged, ...innocent } = await site.interruptions();
    expect(charged).toBe(deadFrom);
    for (const [id, n] of Object.entries(innocent)) expect([id, n <= aloneFrom]).toEqual([id, true]);
    expect((await site.runs())[poison]).toBe(deadFrom);
    expect(await alone(poison)).toBe(true);
    expect(await site.attemptsCharged()).toBe(1); // the dead letter's own line
    // One message of it, answered after the first death: everything after that is the database's.
    expect(await broker.messages()).toBe(tasks.length);
    await broker.answered();
  }, 120_000);

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
