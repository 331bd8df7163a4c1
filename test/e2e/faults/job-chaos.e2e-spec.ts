import { setTimeout as pause } from 'node:timers/promises';
import type { JobTask } from '../../support/job-main.js';
import { ServerProcess } from '../../support/server-process.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { JobSite } from './job-site.js';

/** Longer runs differ in nothing but the tests' patience; CHAOS_SECONDS=300 is the one to run before a release. */
const seconds = Number(process.env['CHAOS_SECONDS'] ?? 20);
const backMs = 60_000;

const tasks: readonly JobTask[] = [
  { name: 'test.quick', schedule: '* * * * * *', ms: 20 },
  { name: 'test.hears', schedule: { every: '2s' }, ms: 1_500 },
  { name: 'test.deaf', schedule: { every: '3s' }, ms: 2_000, deaf: true },
  { name: 'test.tenants', schedule: { every: '4s' }, ms: 100, options: { perTenant: { concurrency: 4 } } },
];

const random = (below: number): number => Math.floor(Math.random() * below);

describe('jobs under random faults', () => {
  let server: ServerProcess;
  let site: JobSite;
  const live: WorkerProcess[] = [];
  const counts: Record<string, number> = {};

  beforeAll(async () => {
    server = await ServerProcess.start();
    site = await JobSite.open(server.url);
  });

  afterAll(async () => {
    await site?.close();
    await server?.stop();
  });

  const any = () => live[random(live.length)] as WorkerProcess;
  const replace = async (one: WorkerProcess) => {
    live.splice(live.indexOf(one), 1, await site.process(tasks, { TENANTS: '40' }));
  };
  const terminate = (application: string) =>
    site.database.query(
      `SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = $1 ORDER BY random() LIMIT 1) one`,
      [application],
    );
  const restart = async (how: 'pause' | 'crash') => {
    await server[how]();
    await pause(random(3_000));
    await server.resume();
  };

  const faults: Record<string, () => Promise<unknown>> = {
    kill: async () => {
      const one = any();
      await one.kill();
      await replace(one);
    },
    stop: async () => {
      const one = any();
      await one.stop();
      await replace(one);
    },
    // Nothing else meanwhile: a process that is paused and loses its lock cannot keep others away.
    pause: async () => {
      const one = any();
      one.signal('SIGSTOP');
      await pause(random(5_000));
      one.signal('SIGCONT');
      await pause(500);
    },
    lock: () => terminate('nestjs-outbox jobs'),
    number: () => terminate('nestjs-outbox worker lock'),
    both: () => Promise.all([terminate('nestjs-outbox jobs'), terminate('nestjs-outbox worker lock')]),
    pool: () => terminate('app'),
    restart: () => restart('pause'),
    crash: () => restart('crash'),
  };

  /** Attempts that were begun twice, and slots that returned and were run again: one that died before it could say so. */
  const twice = () =>
    site.witness.query<{ job: string; slot: Date }>(
      'SELECT job, slot, attempt, array_agg(how) AS how FROM runs WHERE tenant IS NULL GROUP BY job, slot, attempt HAVING count(*) > 1',
    );
  const again = () =>
    site.witness.value<number>(
      `SELECT count(*)::int FROM runs a WHERE tenant IS NULL AND how = 'returned' AND EXISTS (SELECT 1 FROM runs b WHERE b.job = a.job AND b.slot = a.slot AND b.n > a.n)`,
    );

  /** Tenants whose effect of one slot was committed twice. */
  const committedTwice = () =>
    site.database.query('SELECT tenant, slot FROM effects GROUP BY tenant, slot HAVING count(*) > 1');

  const tenants = () =>
    site.database.query(
      `SELECT count(DISTINCT slot)::int AS slots, count(*)::int AS effects, (SELECT count(*)::int FROM
        (SELECT 1 FROM effects GROUP BY slot HAVING count(*) = 40) whole) AS whole FROM effects`,
    );

  it(
    'never run two at a time, begin no attempt twice, and go on by themselves',
    async () => {
      live.push(...(await Promise.all([1, 2, 3].map(() => site.process(tasks, { TENANTS: '40' })))));
      const names = Object.keys(faults);
      for (const end = performance.now() + seconds * 1_000; performance.now() < end; ) {
        const name = names[random(names.length)] as string;
        counts[name] = (counts[name] ?? 0) + 1;
        await faults[name]?.();
        await pause(random(1_500));
      }
      await Promise.all(tasks.map(({ name }) => site.ticks(name, 2, backMs)));
      const runs = await site.witness.query(
        `SELECT job, count(*)::int AS runs, count(DISTINCT slot)::int AS slots, count(*) FILTER (WHERE attempt > 1)::int AS again,
          count(*) FILTER (WHERE reason = 'JobLockLostError')::int AS lost FROM runs GROUP BY job ORDER BY job`,
      );
      const figures = { counts, runs, again: await again(), twice: (await twice()).length, tenants: await tenants() };
      if (seconds > 60) console.log(JSON.stringify(figures));
      expect(await site.overlaps()).toEqual([]);
      expect(await twice()).toEqual([]);
      expect(await committedTwice()).toEqual([]);
    },
    (seconds + 120) * 1_000,
  );
});
