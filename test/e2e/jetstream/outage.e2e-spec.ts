import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import { ServerProcess } from '../../support/server-process.js';
import type { Task } from '../../support/worker-main.js';
import { FaultSite } from '../faults/fault-site.js';
import { Broker } from './broker.js';

/** Longer than `ack_wait`. */
const outageMs = 3_000;

describeWithNats('Postgres is restarted with messages in flight', () => {
  let server: ServerProcess;
  let broker: Broker;
  let site: FaultSite;

  beforeAll(async () => {
    server = await ServerProcess.start();
  });

  afterAll(() => server?.stop());

  beforeEach(async () => {
    broker = await Broker.open('2s');
    site = await FaultSite.open(server.url, broker.env);
  });

  afterEach(() => broker?.close(site));

  it.each([
    ['in order', () => server.pause()],
    ['as by a crash', () => server.crash()],
  ])('%s, under load: each event is handled once, no attempt is charged', async (_, stop) => {
    const workers = [await site.worker(), await site.worker()];
    const published = () => site.ask(...Array.from({ length: 5 }, (): Task => ({ ms: 50 })));
    let going = true;
    let errors = 0;
    const load = (async () => {
      while (going) {
        await published().catch(() => errors++);
        await pause(20);
      }
    })();
    await Promise.all(workers.map((worker) => worker.started()));
    await stop();
    await pause(outageMs);
    await server.resume();
    await eventually('there is load again', () => published().catch(() => undefined), 30_000);
    going = false;
    await load;
    expect(errors).toBeGreaterThan(0);
    const stored = (await site.database.query<{ id: string }>('SELECT id FROM outbox.events')).map(({ id }) => id);
    await site.handledOnce(stored);
    expect(await site.attemptsCharged()).toBe(0);
    // Only what ran when it stopped is suspect, and that once at most.
    const charged = Object.values(await site.interruptions());
    console.log(`${stored.length} events around a restart, ${charged.length} of them charged with an interruption`);
    expect(charged.filter((n) => n !== 1)).toEqual([]);
    expect(charged.length).toBeLessThanOrEqual(8);
    await broker.answered();
    for (const worker of workers) expect(worker.running).toBe(true);
  });

  it('what waited in memory is handed back when it is there again, uncharged, and runs elsewhere', async () => {
    const first = await site.worker({ HOLD: 'on' });
    const ids = await site.ask(...Array.from({ length: 8 }, () => ({ hold: true })));
    await eventually('four run and four wait', async () => {
      return first.begun === 4 && (await broker.consumer()).num_ack_pending === 8;
    });
    await server.pause();
    // Longer than `ack_wait`: what has not begun by then is to be handed back, and cannot be.
    await pause(outageMs);
    await server.resume();
    const second = await site.worker();
    await eventually('the four that waited run elsewhere', () => second.begun === 4, 30_000);
    first.go();
    await site.handledOnce(ids);
    expect(await site.attemptsCharged()).toBe(0);
    const ran = new Set(first.reports.flatMap(({ kind, eventId }) => (kind === 'started' && eventId ? [eventId] : [])));
    for (const [id, n] of Object.entries(await site.interruptions())) expect([ran.has(id), n]).toEqual([true, 1]);
    await broker.answered();
    expect((await broker.consumer()).num_redelivered).toBe(0);
  });
});
