import { Injectable, type OnModuleDestroy, type Provider } from '@nestjs/common';
import { type DeliveryContext, EventPublisher, type OutboxEvent, type OutboxRole, Subscribe } from 'nestjs-outbox';
import { eventually, gate } from '../../support/eventually.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { FaultSite } from './fault-site.js';

/** Longer than a test waits for anything: what happens before is not brought about by the end of the drain. */
const patiently = { HOLD: 'on', DRAIN: '60s' };

describe('a process lives and dies in order', () => {
  let site: FaultSite;

  beforeEach(async () => {
    site = await FaultSite.open();
  });

  afterEach(() => site?.close());

  const workers = () => site.database.value<number>('SELECT count(*)::int FROM outbox.workers');
  const begun = (worker: WorkerProcess) => worker.reports.filter((report) => report.kind === 'started').length;
  const sessions = (name: string) =>
    site.database.value<number>(
      'SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE $1',
      [name],
    );
  const ofTheLibrary = () => sessions('nestjs-outbox%');

  const inTransaction = () =>
    site.database.value<number>(
      `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`,
    );

  /** An app in this process; `work` is what its handler does. */
  function boot(
    work: (publisher: EventPublisher) => Promise<unknown>,
    { role = 'all', providers = [] }: { role?: OutboxRole; providers?: Provider[] } = {},
  ) {
    @Injectable()
    class Work {
      constructor(private readonly publisher: EventPublisher) {}

      @Subscribe('test.work.asked', 'worker', { backoff: ['200ms'] })
      async run(event: OutboxEvent, context: DeliveryContext): Promise<void> {
        await context.manager.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
        await work(this.publisher);
      }
    }
    return site.app({ outbox: { role, drain: '5s' }, providers: [Work, ...providers] });
  }

  describe('SIGTERM with enableShutdownHooks', () => {
    it('lets a running handler end, and publish; the process goes by the signal and leaves no worker', async () => {
      const worker = await site.worker(patiently);
      const id = await site.askOne({ hold: true, publish: {} });
      await worker.started(id);
      worker.signal('SIGTERM');
      await eventually('it has stopped taking', async () => (await sessions('nestjs-outbox relay')) === 0);
      worker.go();
      await worker.gone();
      expect(worker.child.signalCode).toBe('SIGTERM');
      expect(await workers()).toBe(0);
      await site.handledOnce([id]);
      const ids = (await site.database.query<{ id: string }>('SELECT id FROM outbox.events')).map((row) => row.id);
      expect(ids).toHaveLength(2);
      await site.worker();
      await site.handledOnce(ids);
      expect(await site.interruptions()).toEqual({});
    });

    it('hands back what was fetched and not started: others run it while the old handlers still run', async () => {
      const first = await site.worker(patiently);
      const ids = await site.ask(...Array.from({ length: 24 }, () => ({ hold: true })));
      await eventually('four run', () => begun(first) === 4);
      const second = await site.worker();
      first.signal('SIGTERM');
      await eventually('20 run elsewhere', () => begun(second) === 20);
      expect(first.running).toBe(true);
      first.go();
      await first.gone();
      await site.handledOnce(ids);
      expect(await site.runs()).toEqual(Object.fromEntries(ids.map((id) => [id, 1])));
      expect(await site.interruptions()).toEqual({});
      expect(await workers()).toBe(1);
    });

    it.each([
      ['waits in JavaScript', { hold: true }],
      ['waits inside the database', { sql: 'SELECT pg_sleep(60)' }],
    ])('cuts off a handler that %s longer than `drain`, uncharged; it runs elsewhere', async (_, task) => {
      const first = await site.worker({ HOLD: 'on', DRAIN: '500ms' });
      const id = await site.askOne(task);
      await first.started(id);
      const second = await site.worker();
      first.signal('SIGTERM');
      await first.gone();
      expect(first.child.signalCode).toBe('SIGTERM');
      await second.started(id);
      await site.handledOnce([id]);
      expect(await site.runs()).toEqual({ [id]: 2 });
      expect(await site.interruptions()).toEqual({});
      expect(await site.attemptsCharged()).toBe(0);
    });
  });

  it('SIGTERM without enableShutdownHooks is a crash: others repair it, charged once', async () => {
    const first = await site.worker({ HOLD: 'on', SHUTDOWN_HOOKS: 'off' });
    const id = await site.askOne({ hold: true });
    await first.started(id);
    first.signal('SIGTERM');
    await first.gone();
    expect(await workers()).toBe(1);
    await site.worker();
    await site.handledOnce([id]);
    expect(await site.interruptions()).toEqual({ [id]: 1 });
    await eventually('the dead worker is gone', async () => (await workers()) === 1);
  });

  it('a failure after the stop began is uncharged', async () => {
    const started = gate();
    const destroyed = gate();
    const failed = gate();
    @Injectable()
    class Redis implements OnModuleDestroy {
      async onModuleDestroy(): Promise<void> {
        destroyed.open();
        await failed.passed;
        // Long enough for the failure to be recorded while the destroy hooks of the other modules have yet to run.
        await eventually('the handler ended', async () => (await inTransaction()) === 0);
      }
    }
    const app = await boot(
      async () => {
        started.open();
        await destroyed.passed;
        failed.open();
        throw new Error('what it needs was destroyed');
      },
      { providers: [Redis] },
    );
    const id = await site.askOne({});
    await started.passed;
    await app.close();
    expect(await site.database.query('SELECT event_id, attempt, interruptions, lease FROM outbox.deliveries')).toEqual([
      { event_id: id, attempt: 0, interruptions: 0, lease: null },
    ]);
    expect(await site.attemptsCharged()).toBe(0);
    await site.worker();
    await site.handledOnce([id]);
  });

  it.each([
    ['publisher', 0, 0],
    ['worker', 1, 5],
    ['all', 1, 5],
  ] as const)('role %s: %d worker and %d connections of the library', async (role, enrolled, connections) => {
    const app = await boot(async () => {}, { role });
    expect(await workers()).toBe(enrolled);
    await eventually('its connections', async () => (await ofTheLibrary()) === connections);
    const { id } = await app.publisher.publishNow('test.work.asked', {});
    if (role === 'publisher') await eventually('it tells workers', async () => (await ofTheLibrary()) === 1);
    else await site.handledOnce([id]);
    await app.close();
    await eventually('none is left', async () => (await ofTheLibrary()) === 0);
    expect(await site.database.query('SELECT event_id FROM outbox.queue')).toEqual(
      role === 'publisher' ? [{ event_id: id }] : [],
    );
    // What the publisher left in the queue is for others.
    if (role !== 'publisher') return;
    await site.worker();
    await eventually('the queue is empty', async () => (await site.database.query('TABLE outbox.queue')).length === 0);
  });

  it('close twice is close once', async () => {
    const app = await boot(async () => {});
    await Promise.all([app.app.close(), app.app.close()]);
    await app.app.close();
    expect(await workers()).toBe(0);
  });

  it('boot and close ten times leaves no timer, no socket, no session, no lock', async () => {
    await (await boot(async () => {})).close();
    const before = resources();
    for (let i = 0; i < 10; i++) {
      const app = await boot(async () => {});
      const { id } = await app.publisher.publishNow('test.work.asked', {});
      await site.handledOnce([id]);
      await app.close();
    }
    // One left by each would be ten more; a few come and go with Jest and the pool of the publisher.
    await eventually('about as many timers and sockets as before', () => {
      const after = resources();
      if (after.timers > before.timers + 3 || after.sockets > before.sockets + 3)
        throw new Error(JSON.stringify({ before, after }));
      return true;
    });
    await eventually('no session is left', async () => (await ofTheLibrary()) === 0);
    expect(await workers()).toBe(0);
  });
});

/** Timers and sockets that keep this process alive. */
function resources(): { timers: number; sockets: number } {
  const names = process.getActiveResourcesInfo();
  return {
    timers: names.filter((name) => name === 'Timeout').length,
    sockets: names.filter((name) => name === 'TCPSocketWrap').length,
  };
}
