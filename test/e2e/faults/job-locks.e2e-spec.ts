import { setTimeout as pause } from 'node:timers/promises';
import { eventually, gate } from '../../support/eventually.js';
import type { JobTask } from '../../support/job-main.js';
import { job, useStage } from '../../support/stage.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { backends } from './fault-site.js';
import { JobSite } from './job-site.js';

const tick: JobTask = { name: 'test.tick', schedule: '* * * * * *', ms: 20 };
/** Longer than any look and the 2.5 s of a free lock, so that everybody has had the time to do what they should not. */
const looksMs = 6_000;
/** Once a year: that its last slot is due is for the test to say, and its runs are kept in `job_runs`. */
const yearly = '0 0 1 1 *';

interface StateRow {
  readonly attempt: number;
  readonly outcome: string | null;
  readonly late: boolean;
  readonly free: boolean;
}

describe('the lock of a job that runs', () => {
  let site: JobSite;

  beforeEach(async () => {
    site = await JobSite.open();
    await site.due('test.year', `cron ${yearly} UTC`);
  });

  afterEach(() => site?.close());

  const year = (task: Partial<JobTask>): JobTask => ({ name: 'test.year', schedule: yearly, ...task });
  const runs = () =>
    site.database.query<{ attempt: number; outcome: string | null; error: string | null }>(
      `SELECT attempt, outcome, error FROM outbox.job_runs WHERE job = 'test.year' ORDER BY attempt`,
    );
  const terminate = (pids: readonly number[]) =>
    site.database.query('SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid', [pids]);
  /** The sessions that hold the locks of jobs, without those of processes that came later. */
  const jobs = async (without: readonly number[] = []) =>
    (await backends(site.database, 'nestjs-outbox jobs')).filter((pid) => !without.includes(pid));

  const holds = (pid: number) =>
    site.database.value<boolean>(
      `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND granted)`,
      [pid],
    );

  it('lost with its connection, and the method ends as it is asked to: marked, and run again', async () => {
    const first = await site.process([tick, year({ hold: true })]);
    const cut = await site.run('test.year', 1);
    const lock = await jobs();
    await site.process([tick, year({ ms: 100 })]);
    await terminate(lock);
    const again = await site.run('test.year', 2);
    expect(again).toMatchObject({ slot: cut.slot, attempt: 2 });
    first.go();
    await eventually('it is recorded', async () => (await runs())[1]?.outcome);
    expect(await runs()).toEqual([
      { attempt: 1, outcome: 'lock lost', error: expect.stringContaining('JobLockLostError') },
      { attempt: 2, outcome: 'done', error: null },
    ]);
    expect((await site.runs('test.year'))[0]).toMatchObject({ how: 'threw', reason: 'JobLockLostError' });
    await site.ticks('test.tick', 3);
  });

  it('lost with its connection, and the method goes on: nobody runs it beside, it is marked, and done', async () => {
    const first = await site.process([tick, year({ hold: true, deaf: true })]);
    await site.run('test.year', 1);
    const lock = await jobs();
    await site.process([tick, year({ ms: 100 })]);
    await terminate(lock);
    await pause(looksMs);
    first.go();
    await eventually('it is recorded', async () => (await runs())[0]?.outcome);
    expect(await runs()).toEqual([{ attempt: 1, outcome: 'lock lost', error: null }]);
    await site.ticks('test.tick', 3);
    expect(await site.runs('test.year')).toMatchObject([{ how: 'returned', reason: 'JobLockLostError' }]);
  });

  it('lost three times while the method runs: nobody runs it beside', async () => {
    const first = await site.process([year({ hold: true, deaf: true })]);
    await site.run('test.year', 1);
    let lock = await jobs();
    await site.process([year({ ms: 100 })]);
    const other = await eventually("the other's connection is there", async () => {
      const found = await jobs(lock);
      return found.length > 0 && found;
    });
    for (let n = 0; n < 3; n++) {
      await terminate(lock);
      lock = await eventually('it is taken again', async () => {
        const [pid = 0] = await jobs([...other, ...lock]);
        return (await holds(pid)) && [pid];
      });
    }
    await pause(looksMs);
    first.go();
    await eventually('it is recorded', async () => (await runs())[0]?.outcome);
    expect(await runs()).toEqual([{ attempt: 1, outcome: 'lock lost', error: null }]);
  });

  it("lost together with the worker's number: nobody runs it beside", async () => {
    const first = await site.process([year({ hold: true, deaf: true })]);
    await site.run('test.year', 1);
    const locks = [...(await jobs()), ...(await backends(site.database, 'nestjs-outbox worker lock'))];
    await site.process([year({ ms: 100 })]);
    await terminate(locks);
    await pause(looksMs);
    first.go();
    await eventually('it is recorded', async () => (await runs())[0]?.outcome);
    expect(await runs()).toEqual([{ attempt: 1, outcome: 'lock lost', error: null }]);
    expect(first.running).toBe(true);
  });

  it('of a job that hangs is held past its deadline, which the state shows, until it ends', async () => {
    const first = await site.process([tick, year({ hold: true, deaf: true, options: { timeout: '1s' } })]);
    await site.run('test.year', 1);
    const [lock] = await jobs();
    await site.process([tick, year({ ms: 100, options: { timeout: '1s' } })]);
    const state = () =>
      site.database.query<StateRow & Record<string, unknown>>(
        `SELECT attempt, outcome, deadline < clock_timestamp() - interval '4 seconds' AS late,
          NOT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1) AS free
         FROM outbox.job_state WHERE job = 'test.year' AND running_slot IS NOT NULL`,
        [lock],
      );
    await eventually('its deadline is long over', async () => (await state())[0]?.late);
    expect(await state()).toEqual([{ attempt: 1, outcome: null, late: true, free: false }]);
    expect(await site.runs('test.year')).toHaveLength(1);
    first.go();
    await eventually('it is recorded', async () => (await runs())[0]?.outcome);
    expect(await runs()).toEqual([{ attempt: 1, outcome: 'done', error: null }]);
    expect(await site.runs('test.year')).toMatchObject([{ how: 'returned', reason: 'JobTimeoutError' }]);
    await site.ticks('test.tick', 2);
  });
});

describe('a lock whose connection ends at the moment at which it is granted', () => {
  const stage = useStage();
  const release = gate();
  let proxy: TcpProxy;

  beforeAll(async () => {
    proxy = await TcpProxy.before(stage.database.url);
  });

  afterAll(() => proxy?.close());

  const locks = (where = 'true') =>
    stage.database.query<{ pid: number }>(
      `SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'
        AND a.application_name = 'nestjs-outbox jobs' AND a.datname = current_database() AND ${where}`,
    );

  it('is not believed to be held: no method begins without it', async () => {
    const began = gate();
    const method = async () => {
      began.open();
      await release.passed;
    };
    proxy.holdAnswersTo('outbox_job_lock_');
    const app = await stage.boot({
      outbox: { infrastructure: { url: proxy.url } },
      providers: [job('test.tick', '* * * * * *', method)],
    });
    const [{ pid }] = await eventually('it is granted', async () => {
      const [lock] = await locks();
      return lock && [lock];
    });
    await stage.database.query('SELECT pg_terminate_backend($1)', [pid]);
    await eventually('the session has ended', async () => (await locks()).length === 0);
    proxy.letGo();
    await began.passed;
    const held = await locks('l.granted');
    release.open();
    await app.close();
    expect(held).toHaveLength(1);
  });
});

describe('a lock that is found free while servers come and go', () => {
  const stage = useStage();
  const release = gate();
  const proxies: TcpProxy[] = [];

  beforeAll(async () => {
    for (let n = 0; n < 2; n++) proxies.push(await TcpProxy.before(stage.database.url));
  });

  afterAll(() => Promise.all(proxies.map((proxy) => proxy.close())));

  /** How many schedulers have a session, and asked last (since a moment) what `question` says. */
  const asked = (question = '', since = new Date(0)) =>
    stage.database.value<number>(
      `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'nestjs-outbox jobs' AND query LIKE $1 AND query_start > $2`,
      [`%${question}%`, since],
    );

  it('is not free for long enough when who looks was away meanwhile: its holder may have been away with it', async () => {
    const [near, far] = proxies as [TcpProxy, TcpProxy];
    const runs: string[] = [];
    const began = gate();
    const boot = (proxy: TcpProxy, app: string) => {
      const method = async () => {
        runs.push(app);
        began.open();
        await release.passed;
      };
      return stage.boot({
        outbox: { infrastructure: { url: proxy.url } },
        providers: [job('test.tick', '* * * * * *', method)],
      });
    };
    const first = await boot(near, 'first');
    await began.passed;
    const second = await boot(far, 'second');
    await eventually('both are there', async () => (await asked()) === 2);
    try {
      // Before the cut: found free once, it is not asked for again before it is taken up.
      const since = await stage.database.value<Date>('SELECT clock_timestamp()');
      near.cut();
      await eventually('the lock is free', async () => (await asked()) === 1);
      await eventually('the second one has found it free', () => asked('AS free', since));
      far.cut();
      await pause(3_000);
      far.mend();
      await eventually('the second one is back', () => asked());
      near.mend();
      await pause(4_000);
      expect(runs).toEqual(['first']);
    } finally {
      release.open();
      await Promise.all([first.close(), second.close()]);
    }
  });
});

describe('a process that looks whether a lock is free, and hears nothing', () => {
  let site: JobSite;
  let proxy: TcpProxy;

  beforeEach(async () => {
    site = await JobSite.open();
    proxy = await TcpProxy.before(site.database.url);
  });

  afterEach(async () => {
    await proxy?.close();
    await site?.close();
  });

  it('keeps nobody away: the slot is taken up by another within seconds', async () => {
    const first = await site.process([{ ...tick, hold: true }]);
    await site.run('test.tick', 1);
    const looker = await site.process([tick], { INFRASTRUCTURE_URL: proxy.url });
    const third = await site.process([tick]);
    proxy.holdAnswersTo('outbox_job_free_');
    await eventually('it has asked', () => proxy.holds);
    await first.kill();
    // After ten seconds without an answer it would give up its connection, and whatever it kept with it.
    const again = await site.run('test.tick', 2, 9_000);
    expect(again).toMatchObject({ attempt: 2, pid: third.pid });
    await looker.kill();
  });
});
