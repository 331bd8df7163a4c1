import { setTimeout as pause } from 'node:timers/promises';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';

import { eventually } from '../../support/eventually.js';
import { ServerProcess } from '../../support/server-process.js';
import type { TestApp } from '../../support/test-app.js';
import { FaultSite } from './fault-site.js';

/** Longer outages differ in nothing but the tests' patience; OUTAGE_SECONDS=10 is the one to run before a release. */
const outageMs = Number(process.env['OUTAGE_SECONDS'] ?? 3) * 1_000;
/** Relay, taker, sweep, back-fill, worker lock, and what the handlers say. */
const loops = 6;

@Injectable()
class Work {
  readonly began = new Set<string>();

  @Subscribe('test.work.asked', 'worker', { backoff: ['200ms'] })
  async run(event: OutboxEvent<{ ms?: number }>, context: DeliveryContext): Promise<void> {
    this.began.add(event.id);
    await context.manager.query('INSERT INTO effects (event_id, attempt) VALUES ($1, $2)', [event.id, context.attempt]);
    await pause(event.payload.ms ?? 5, undefined, { ref: false });
  }
}

describe('an outage is not a failure', () => {
  let server: ServerProcess;
  let site: FaultSite;
  let up = true;

  beforeAll(async () => {
    server = await ServerProcess.start();
  });

  afterAll(() => server?.stop());

  beforeEach(async () => {
    site = await FaultSite.open(server.url);
  });

  afterEach(async () => {
    if (!up) await resume();
    await site?.close();
  });

  const stop = async () => {
    up = false;
    await server.pause();
  };
  const resume = async () => {
    await server.resume();
    up = true;
  };
  const leased = () =>
    site.database.value<number>('SELECT count(*)::int FROM outbox.deliveries WHERE lease IS NOT NULL');
  const boot = (drain: '1s' | '5s' = '5s') => site.app({ providers: [Work], outbox: { drain } });
  const publish = async (app: TestApp, payload: object) =>
    (await app.publisher.publishNow('test.work.asked', payload)).id;

  it('under load: publishers see errors, and what was committed is handled once, uncharged, without a restart', async () => {
    const app = await boot();
    await site.worker();
    const committed: string[] = [];
    let errors = 0;
    let going = true;
    const publishers = Array.from({ length: 3 }, async () => {
      while (going)
        try {
          committed.push(await publish(app, {}));
        } catch {
          errors += 1;
          await pause(50);
        }
    });
    await eventually('there is load', () => committed.length > 100);
    const quiet = app.log.lines.length;
    const began = performance.now();
    await stop();
    await pause(outageMs);
    const said = app.log.lines.length - quiet;
    const seconds = (performance.now() - began) / 1_000;
    const before = committed.length;
    await resume();
    await eventually('there is load again', () => committed.length > before + 100, 30_000);
    going = false;
    await Promise.all(publishers);
    expect(errors).toBeGreaterThan(0);
    // A publisher may have been told of an error though its COMMIT went through: what is stored is what counts.
    const stored = (await site.database.query<{ id: string }>('SELECT id FROM outbox.events')).map((row) => row.id);
    expect(stored).toEqual(expect.arrayContaining(committed));
    await site.handledOnce(stored);
    expect(await site.attemptsCharged()).toBe(0);
    for (const n of Object.values(await site.interruptions())) expect(n).toBe(1);
    expect(said).toBeGreaterThan(0);
    expect(said).toBeLessThan(loops * (seconds + 3));
  });

  it('charges nothing that only waited in memory, whoever comes back first', async () => {
    const other = await site.worker({ HOLD: 'on' });
    const held = await site.ask(...Array.from({ length: 24 }, () => ({ hold: true })));
    await eventually('four run in the other, and 20 wait', async () => {
      const started = other.reports.filter((report) => report.kind === 'started').length;
      return started === 4 && (await leased()) === 24;
    });
    const app = await boot();
    const own = await Promise.all(Array.from({ length: 40 }, () => publish(app, { ms: 400 })));
    const ids = [...held, ...own];
    await eventually('this one runs some and holds more', async () => {
      return app.app.get(Work).began.size >= 4 && (await leased()) > 24 + 5;
    });
    await stop();
    const ran = new Set([...app.app.get(Work).began]);
    for (const report of other.reports) if (report.kind === 'started' && report.eventId) ran.add(report.eventId);
    // The other one comes back long after this app has begun to sweep.
    other.signal('SIGSTOP');
    await resume();
    const workers = () => site.database.query<{ id: number }>('SELECT id FROM outbox.workers');
    await eventually('the sweep has seen its number', async () => (await workers()).length === 1, 30_000);
    other.signal('SIGCONT');
    other.go();
    await site.handledOnce(ids);
    expect(await site.attemptsCharged()).toBe(0);
    for (const [id, n] of Object.entries(await site.interruptions())) expect([ran.has(id), n]).toEqual([true, 1]);
  });

  it('a stop while the database is gone ends within its bounds, and what was underway is handled later', async () => {
    const app = await boot('1s');
    const ids = await Promise.all(Array.from({ length: 12 }, () => publish(app, { ms: 60_000 })));
    await eventually('four run', () => app.app.get(Work).began.size === 4);
    await stop();
    const begin = performance.now();
    await app.close();
    // A few seconds each for what is handed back, drained and ended; a busy machine takes a moment more.
    expect(performance.now() - begin).toBeLessThan(15_000);
    await resume();
    await site.database.query(`UPDATE outbox.events SET payload = '{}'`);
    await site.worker();
    await site.handledOnce(ids);
    expect(await site.attemptsCharged()).toBe(0);
  });

  it('a process that starts while the database is not up yet comes up with it', async () => {
    await site.publisher.close();
    await stop();
    const worker = site.launch();
    await eventually('it says so', () => worker.said({ kind: 'log', text: /Unable to connect to the database/ }));
    await resume();
    await worker.ready();
    expect(worker.running).toBe(true);
  });

  it('a database that goes away during the start is waited for, with a line that says so', async () => {
    const gone = stop;
    @Injectable()
    class Unlucky implements OnModuleInit {
      async onModuleInit(): Promise<void> {
        await gone();
      }
    }
    const starting = site.app({ providers: [Work, Unlucky] });
    await eventually('the server is down', () => !up);
    const began = performance.now();
    await pause(1_500);
    await resume();
    const app = await starting;
    const waited = app.log.matching(/waiting for the database/);
    expect(waited.length).toBeGreaterThan(0);
    expect(waited.length).toBeLessThan(5 + (performance.now() - began) / 1_000);
    await site.handledOnce([await publish(app, {})]);
  });
});
