import { setTimeout as pause } from 'node:timers/promises';
import type { TenantJobContext } from 'nestjs-outbox';
import { eventually, gate } from '../../support/eventually.js';
import type { JobTask } from '../../support/job-main.js';
import { job, useStage } from '../../support/stage.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { JobSite } from './job-site.js';

const tenants = 1_000;
const failEvery = 20;
const failing = Array.from({ length: tenants / failEvery }, (_, n) => `t${n * failEvery}`);
const concurrency = 4;
const yearly = '0 0 1 1 *';
/** Long enough for all of them together that a process is killed before they are done, and a dozen connections ended meanwhile. */
const slowMs = 12;

const renew: JobTask = {
  name: 'test.renew',
  schedule: yearly,
  failEvery,
  options: { perTenant: { concurrency }, retries: 1 },
};

describe(`a job for ${tenants} tenants, of which ${failing.length} fail`, () => {
  let site: JobSite;

  beforeEach(async () => {
    site = await JobSite.open();
    await site.due(renew.name, `cron ${yearly} UTC`);
  });

  afterEach(() => site?.close());

  const start = (ms: number) => site.process([{ ...renew, ms }], { TENANTS: String(tenants) });
  const effects = () => site.database.value<number>('SELECT count(*)::int FROM effects');
  const runs = () =>
    site.database.query<{ attempt: number; outcome: string | null; error: string }>(
      'SELECT attempt, outcome, error FROM outbox.job_runs ORDER BY attempt',
    );
  /** Tenants whose method began more than once. */
  const again = () =>
    site.witness.query<{ tenant: string; n: number }>(
      'SELECT tenant, count(*)::int AS n FROM runs GROUP BY tenant HAVING count(*) > 1',
    );

  /**
   * Ends a session of the applications' pools whenever a few more tenants are done, until `done`; returns how many it has
   * ended. By the work and not by the clock: a tenant is tried five times, and on a slow machine one would meet each.
   */
  async function disturb(done: () => boolean): Promise<number> {
    let ended = 0;
    for (let next = 0; !done(); await pause(50)) {
      const now = await effects();
      if (now < next) continue;
      next = now + 25;
      ended += await site.database.value<number>(
        `SELECT count(pg_terminate_backend(pid))::int FROM (SELECT pid FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'app' ORDER BY random() LIMIT 1) one`,
      );
    }
    return ended;
  }

  async function expectEachOnce(attempt: number): Promise<void> {
    const { error = '', ...last } = (await runs())[attempt - 1] ?? {};
    expect(last).toEqual({ attempt, outcome: 'failed' });
    expect(error).toContain(`AggregateError: job 'test.renew'`);
    expect(error).toContain(`${failing.length} of ${tenants} tenants failed`);
    const named = [...(error.split('\n')[0] ?? '').matchAll(/tenant '(t\d+)'/g)].map(([, tenant]) => tenant);
    expect(named).toEqual(failing);
    expect(await effects()).toBe(tenants - failing.length);
    expect(await site.database.value('SELECT count(DISTINCT tenant)::int FROM effects')).toBe(tenants - failing.length);
    expect(await site.witness.value('SELECT count(DISTINCT tenant)::int FROM runs')).toBe(tenants);
  }

  const ended = (attempt: number) =>
    eventually('the last attempt has ended', async () => (await runs())[attempt - 1]?.outcome, 80_000);

  it('killed half-way: each is committed once, each failing one is run once, and one error names them all', async () => {
    const first = await start(slowMs);
    const second = await start(slowMs);
    await eventually('half of them are done', async () => (await effects()) > tenants / 2, 40_000);
    await first.kill();
    await ended(2);
    await expectEachOnce(2);
    expect((await runs())[0]).toMatchObject({ attempt: 1, outcome: 'interrupted' });
    // Those that were under way when the process was killed began, and nothing of them is left.
    expect((await again()).length).toBeLessThanOrEqual(concurrency);
    const said = second.reports.filter(({ text }) => text?.includes(`${failing.length} of ${tenants} tenants failed`));
    expect(said).toHaveLength(1);
    expect(await site.database.value('SELECT count(*)::int FROM outbox.job_tenants')).toBe(0);
  });

  it('connections of tenants ended at random: each is committed once, and one error names those that fail', async () => {
    let done = false;
    await start(slowMs);
    await eventually('it runs', async () => (await effects()) > 0);
    const disturbance = disturb(() => done);
    await ended(1);
    done = true;
    expect(await disturbance).toBeGreaterThan(5);
    await expectEachOnce(1);
  });

  it('killed half-way, connections ended at random: each is committed once all the same', async () => {
    let done = false;
    const first = await start(slowMs);
    await start(slowMs);
    await eventually('it runs', async () => (await effects()) > 0);
    const disturbance = disturb(() => done);
    await eventually('half of them are done', async () => (await effects()) > tenants / 2, 40_000);
    await first.kill();
    await ended(2);
    done = true;
    expect(await disturbance).toBeGreaterThan(5);
    await expectEachOnce(2);
  });
});

describe('a process that is paused in the middle of its tenants, and whose sessions the server ends', () => {
  let site: JobSite;

  beforeEach(async () => {
    site = await JobSite.open();
    await site.due(renew.name, `cron ${yearly} UTC`);
  });

  afterEach(() => site?.close());

  it('runs none of them again when it wakes after another has done them all', async () => {
    const { failEvery: _, ...work } = renew;
    const start = () => site.process([{ ...work, ms: 100 }], { TENANTS: '40' });
    const effects = () => site.database.value<number>('SELECT count(*)::int FROM effects');
    const first = await start();
    await eventually('some are done', async () => (await effects()) > 4);
    first.signal('SIGSTOP');
    await site.database.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
    );
    await start();
    await eventually('another has ended the slot', () =>
      site.database.value(`SELECT finished_at FROM outbox.job_runs WHERE attempt = 2 AND outcome = 'done'`),
    );
    first.signal('SIGCONT');
    await eventually('it has heard of it', () => first.said({ kind: 'log', text: /somebody else's by now/ }));
    expect(await effects()).toBe(40);
    expect(await site.database.value('SELECT count(DISTINCT tenant)::int FROM effects')).toBe(40);
  });
});

describe('tenants of a slot that is over', () => {
  const stage = useStage();

  it('are not begun by a process that has not heard of it: their marks went with the slot', async () => {
    const seen: string[] = [];
    const began = gate();
    const goOn = gate();
    const method = async ({ tenantId }: TenantJobContext) => {
      seen.push(tenantId);
      began.open();
      await goOn.passed;
    };
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => ['a', 'b', 'c'] } },
      providers: [job('test.renew', { every: '1s' }, method, { perTenant: {} })],
    });
    await began.passed;
    // What another does that took it up and has run them all; and a schedule that has no slot more.
    await stage.database.query(
      `UPDATE outbox.job_state SET running_slot = NULL, outcome = 'done', schedule = 'another one'`,
    );
    await stage.database.query('DELETE FROM outbox.job_tenants');
    goOn.open();
    await eventually('it has heard of it', () => app.log.matching(/somebody else's by now/).length);
    await app.close();
    expect(seen).toEqual(['a']);
  });
});

describe('a connection of the pool that ends', () => {
  const stage = useStage();

  it('while the method of a tenant does something else: it is run again in the same attempt', async () => {
    const seen: { slot: Date; attempt: number }[] = [];
    const over = gate();
    const method = async ({ manager, slot, attempt }: TenantJobContext) => {
      const [{ pid }] = await manager.query('SELECT pg_backend_pid() AS pid');
      if (seen.push({ slot, attempt }) === 1) {
        await stage.database.query('SELECT pg_terminate_backend($1)', [pid]);
        await eventually('the runner has heard of it', () => manager.queryRunner?.isReleased);
      }
      await manager.query(`INSERT INTO effects (note) VALUES ($1)`, [slot.toISOString()]);
      if (seen.length > 1) over.open();
    };
    const app = await stage.boot({
      outbox: { tenancy: { list: async () => ['a'] } },
      providers: [job('test.renew', '* * * * * *', method, { perTenant: {} })],
    });
    await over.passed;
    await app.close();
    const [first, second] = seen;
    expect(second).toEqual({ slot: first?.slot, attempt: 1 });
    expect(
      await stage.database.value('SELECT count(*)::int FROM effects WHERE note = $1', [first?.slot.toISOString()]),
    ).toBe(1);
    expect(app.log.matching(/test\.renew.*failed/)).toEqual([]);
  });

  it('with the transaction in which the tenants were listed: they are asked for again', async () => {
    const proxy = await TcpProxy.before(stage.database.url);
    try {
      const seen: [string, number][] = [];
      const both = gate();
      const method = ({ tenantId, attempt }: TenantJobContext) => {
        if (seen.push([tenantId, attempt]) === 2) both.open();
      };
      const list = async () => ['a', 'b'];
      const renewal = job('test.list', '* * * * * *', method, { perTenant: { concurrency: 1 } });
      proxy.loseAnswerTo('outbox_commit_');
      const app = await stage.boot({
        url: proxy.url,
        outbox: { infrastructure: { url: stage.database.url }, tenancy: { list } },
        providers: [renewal],
      });
      await both.passed;
      await app.close();
      expect(proxy.lost).toBe(1);
      expect(seen.slice(0, 2)).toEqual([
        ['a', 1],
        ['b', 1],
      ]);
      expect(app.log.matching(/test\.list.*failed/)).toEqual([]);
    } finally {
      await proxy.close();
    }
  });
});
