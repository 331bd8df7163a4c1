import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { FaultSite } from '../faults/fault-site.js';
import { Broker } from './broker.js';

const ackWaitMs = 2_000;

describeWithNats('a process that is paused for longer than `ack_wait`', () => {
  let broker: Broker;
  let site: FaultSite;

  beforeEach(async () => {
    ({ broker, site } = await Broker.withSite('2s'));
  });

  afterEach(() => broker?.close(site));

  /** A worker in which four run and four wait in memory, stopped by a signal. */
  async function stopped(): Promise<{ worker: WorkerProcess; held: string[] }> {
    const worker = await site.worker({ HOLD: 'on' });
    const held = await site.ask(...Array.from({ length: 8 }, () => ({ hold: true })));
    await eventually('four run and four wait', async () => {
      return worker.begun === 4 && (await broker.consumer()).num_ack_pending === 8;
    });
    worker.signal('SIGSTOP');
    return { worker, held };
  }

  it('what waited in its memory runs elsewhere, what runs in it is done by it alone, and it does nothing twice when it wakes', async () => {
    const { worker: first, held } = await stopped();
    const second = await site.worker();
    await eventually('the four that waited run elsewhere', () => second.begun === 4);
    const others = await site.ask({}, {}, {});
    await site.handledOnce(others);
    // Long enough for each to be given again, and to be tried by the other, who finds the marks locked.
    await pause(2 * ackWaitMs);
    await eventually('the four that run wait as rows', async () => {
      return (await site.database.value('SELECT count(*)::int FROM outbox.deliveries')) === 4;
    });
    await broker.answered();
    first.signal('SIGCONT');
    first.go();
    await site.handledOnce([...held, ...others]);
    expect(await site.runs()).toEqual(Object.fromEntries([...held, ...others].map((id) => [id, 1])));
    // The broker was not answered for any of the eight, whatever the reason.
    expect(await site.interruptions()).toEqual(Object.fromEntries(held.map((id) => [id, 1])));
    expect(await site.attemptsCharged()).toBe(0);
    await rowsGone();
    await broker.answered();
    // Both take again.
    await site.handledOnce(await site.ask(...Array.from({ length: 20 }, () => ({ ms: 20 }))));
  });

  it('and fails what it runs: the attempt is charged once, and it succeeds at the next', async () => {
    const first = await site.worker({ HOLD: 'on' });
    // Fails at the first run.
    const id = await site.askOne({ hold: true, sql: 'SELECT 1 / (SELECT count(*) - 1 FROM runs)' });
    await first.started(id);
    first.signal('SIGSTOP');
    await site.worker();
    await eventually('it was given again', async () => (await site.interruptions())[id] === 1);
    await broker.answered();
    first.signal('SIGCONT');
    first.go();
    await site.handledOnce([id]);
    expect(await site.attemptsCharged()).toBe(1);
    expect(await site.interruptions()).toEqual({ [id]: 1 });
  });

  const rowsGone = () =>
    eventually('no row waits', async () => {
      return (await site.database.value('SELECT count(*)::int FROM outbox.deliveries')) === 0;
    });
});
