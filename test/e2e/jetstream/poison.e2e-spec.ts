import { describeWithNats } from '../../support/nats.js';
import type { Task } from '../../support/worker-main.js';
import type { FaultSite } from '../faults/fault-site.js';
import { Supervisor, supervisedMs } from '../faults/supervisor.js';
import { Broker } from './broker.js';

const deadFrom = 6;
const aloneFrom = 3;

describeWithNats('an event that kills the process ends over JetStream, too', () => {
  let broker: Broker;
  let site: FaultSite;
  let supervisor: Supervisor;

  beforeEach(async () => {
    ({ broker, site } = await Broker.withSite('2s'));
    supervisor = await Supervisor.over(site);
  });

  afterEach(() => broker?.close(site));

  it(
    'by process.exit: it is run six times, from the third interruption on alone, and becomes a dead letter',
    async () => {
      // The poison takes its time, so that neighbours run beside it; those behind wait in memory and crash with it, too.
      const tasks: Task[] = [{ ms: 300, exit: true }, ...Array.from({ length: 7 }, () => ({ ms: 500 }))];
      const [poison = '', ...neighbours] = await site.ask(...tasks);
      expect(await supervisor.untilDead(1)).toBe(deadFrom);
      await site.handledOnce(neighbours);
      expect(await supervisor.dead()).toEqual([
        { event_id: poison, error: expect.stringMatching(`^InterruptedError.*was interrupted ${deadFrom} times`) },
      ]);
      const { [poison]: charged, ...innocent } = await site.interruptions();
      expect(charged).toBe(deadFrom);
      for (const [id, n] of Object.entries(innocent)) expect([id, n <= aloneFrom]).toEqual([id, true]);
      expect((await site.runs())[poison]).toBe(deadFrom);
      expect(await supervisor.ranAlone(poison, aloneFrom)).toBe(true);
      expect(await site.attemptsCharged()).toBe(1); // the dead letter's own line
      // One message of it, answered after the first death: everything after that is the database's.
      expect(await broker.messages()).toBe(tasks.length);
      await broker.answered();
    },
    2 * supervisedMs,
  );
});
