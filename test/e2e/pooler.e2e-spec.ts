import { setTimeout as pause } from 'node:timers/promises';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { EventPublisher } from 'nestjs-outbox';
import { Client } from 'pg';
import { DataSource } from 'typeorm';
import { eventually, gate } from '../support/eventually.js';
import { job } from '../support/job.js';
import { tickNow, yearly } from '../support/jobs.js';
import { itOfRows } from '../support/of-rows.js';
import { describeWithPgbouncer, type Pgbouncer, startPgbouncer } from '../support/pgbouncer.js';
import { effect, type Stage, subscriber, useStage } from '../support/stage.js';
import type { TestApp, TestAppOptions } from '../support/test-app.js';

const type = 'test.work.asked';
const nameless = /transaction pooler that does not follow prepared statements/;

/** The stage's database behind a pooler of a test's own; poolers end after the apps and before the stage's last look. */
function usePooledStage(): { readonly stage: Stage; pooler: typeof startPgbouncer; boot: Stage['boot'] } {
  const poolers: Pgbouncer[] = [];
  const apps: TestApp[] = [];
  // Before the stage's own: sessions that a pooler keeps bear the name of who used them last.
  afterAll(async () => {
    for (const app of apps) await app.close();
    for (const pooler of poolers) await pooler.stop();
  });
  const stage = useStage();
  return {
    stage,
    pooler: async (...given) => {
      const pooler = await startPgbouncer(...given);
      poolers.push(pooler);
      return pooler;
    },
    boot: async (options) => {
      const app = await stage.boot(options);
      apps.push(app);
      return app;
    },
  };
}

describeWithPgbouncer('through PgBouncer in transaction mode', () => {
  const { stage, pooler, boot } = usePooledStage();
  // By default it waits 15 s after a session that it could not open.
  const settings = { pool_mode: 'transaction', default_pool_size: 12, server_round_robin: 1, server_login_retry: 1 };
  const tried: number[] = [];
  const hung = gate();
  const tenants: string[] = [];
  const wasTenant = `SELECT current_setting('app.tenant_id', true) AS tenant`;
  let behind: Pgbouncer;
  let app: TestApp;

  const publish = (events: TestApp, payload: object, options: object = {}) =>
    events.dataSource.transaction(() => events.publisher.publish(type, payload, options));
  const effectsOf = (id: string) =>
    stage.database.query<{ durable: string; note: string }>(
      'SELECT durable, note, attempt FROM effects WHERE event_id = $1',
      [id],
    );

  beforeAll(async () => {
    behind = await pooler(stage.database.url, settings);
    app = await boot({
      url: behind.url,
      manifest: { emits: [type, 'test.end.asked'] },
      outbox: { infrastructure: { url: stage.database.url }, tenancy: { list: async () => ['a', 'b', 'c'] } },
      providers: [
        subscriber<{ fail?: number; hang?: boolean; ms?: number }>(
          type,
          'work',
          async (event, context) => {
            const [{ tenant }] = await context.manager.query(wasTenant);
            await effect(event, context, tenant);
            await pause(event.payload.ms ?? 0);
            if ((event.payload.fail ?? 0) >= context.attempt) throw new Error('asked to fail');
            if (event.payload.hang && context.attempt === 1) {
              await context.manager.query('SELECT pg_sleep(60)').catch(() => {});
              tried.push(context.attempt);
              await hung.passed;
            }
          },
          { backoff: ['50ms'], maxAttempts: 3, timeout: '5s' },
        ),
        job(
          'tenants',
          yearly,
          async ({ manager, tenantId }) => {
            const [{ tenant }] = await manager.query(wasTenant);
            tenants.push(`${tenantId}=${tenant}`);
          },
          { perTenant: { concurrency: 2 } },
        ),
      ],
    });
  });
  afterAll(() => hung.open());

  it('statements go without names, and the log says so', () => {
    expect(app.log.matching(nameless)).toHaveLength(1);
  });

  it('an event is handled once, in its tenant, whichever session each transaction gets', async () => {
    const ids: string[] = [];
    for (let n = 0; n < 60; n++) ids.push((await publish(app, { n }, { tenantId: `t${n % 3}` })).id);
    await stage.drained();
    for (const [n, id] of ids.entries()) expect(await effectsOf(id)).toMatchObject([{ note: `t${n % 3}`, attempt: 1 }]);
    const sessions = await behind.console('SHOW SERVERS');
    expect(sessions.length).toBeGreaterThan(2);
  });

  it('a failing one is tried again, and is a dead letter in the end', async () => {
    const again = await publish(app, { fail: 1 });
    const dead = await publish(app, { fail: 9 });
    await stage.drained();
    expect(await effectsOf(again.id)).toMatchObject([{ attempt: 2 }]);
    expect(await effectsOf(dead.id)).toEqual([]);
    const letters = await stage.database.query('SELECT event_id, attempts FROM outbox.dead_letters');
    expect(letters).toEqual([{ event_id: dead.id, attempts: 3 }]);
  });

  it('a handler beyond its timeout loses its session by the pid that its claim reported', async () => {
    const { id } = await publish(app, { hang: true });
    await eventually('its first query was ended', () => tried.length > 0);
    hung.open();
    await stage.drained();
    expect(await effectsOf(id)).toMatchObject([{ attempt: 2 }]);
  });

  it('a periodic job runs in a transaction for each tenant', async () => {
    await tickNow(stage, app, 'tenants');
    await eventually('all were seen', () => tenants.length >= 3);
    expect(tenants.toSorted()).toEqual(['a=a', 'b=b', 'c=c']);
  });

  it('a publisher behind it wakes a worker at once', async () => {
    const events = await boot({ url: behind.url, manifest: { emits: [type] }, outbox: { role: 'publisher' } });
    const other = 'test.wake.asked';
    await boot({
      url: behind.url,
      manifest: { accepts: [other] },
      providers: [subscriber(other, 'woken', (e, c) => effect(e, c))],
      outbox: { role: 'worker', infrastructure: { url: stage.database.url }, relay: { poll: '20s' } },
    });
    expect(events.log.matching(nameless)).toHaveLength(1);
    const { id } = await publish(events, {});
    await eventually('it is handled', async () => (await effectsOf(id)).length === 1);
  });

  itOfRows('ending all of its sessions is an outage: nothing is charged, and work resumes by itself', async () => {
    const attempts = 'SELECT count(*)::int FROM outbox.attempts';
    const before = await stage.database.value<number>(attempts);
    const ids = (await Promise.all(Array.from({ length: 12 }, () => publish(app, { ms: 300 })))).map(({ id }) => id);
    const begun = `SELECT count(*)::int FROM outbox.deliveries WHERE lease IS NOT NULL`;
    await eventually('some run', () => stage.database.value<number>(begun));
    const name = new URL(behind.url).pathname.slice(1);
    await behind.console(`KILL ${name}`);
    await behind.console(`RESUME ${name}`);
    await stage.drained();
    for (const id of ids) expect(await effectsOf(id)).toHaveLength(1);
    expect(await stage.database.value<number>(attempts)).toBe(before);
  });

  it('no session that it lends has a setting or a lock of ours left', async () => {
    await stage.drained();
    const direct = new Client({ connectionString: stage.database.url });
    await direct.connect();
    const settings = `SELECT name, setting FROM pg_settings WHERE source IN ('session', 'client') AND name NOT IN
      ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')`;
    const own = (await direct.query(settings)).rows;
    await direct.end();
    const looks = await Promise.all(Array.from({ length: 8 }, () => look(behind.url, settings)));
    expect(new Set(looks.map(({ pid }) => pid)).size).toBeGreaterThan(3);
    for (const { rows, tenant, locks } of looks)
      expect({ rows, tenant, locks }).toEqual({ rows: own, tenant: '', locks: 0 });
  });
});

/** What a session that the pooler lends has set; held open for a moment, so that others get other sessions. */
async function look(url: string, settings: string) {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query('BEGIN');
    const [{ pid, tenant, locks }] = (
      await client.query(
        `SELECT pg_backend_pid() AS pid, coalesce(current_setting('app.tenant_id', true), '') AS tenant,
          (SELECT count(*)::int FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory') AS locks, pg_sleep(0.3)`,
      )
    ).rows;
    const { rows } = await client.query(settings);
    await client.query('COMMIT');
    return { pid, tenant, locks, rows };
  } finally {
    await client.end();
  }
}

/** Publishes while the app starts. */
@Injectable()
class Early implements OnModuleInit {
  constructor(
    readonly dataSource: DataSource,
    readonly publisher: EventPublisher,
  ) {}

  onModuleInit(): Promise<unknown> {
    return burst(this);
  }
}

function burst({ dataSource, publisher }: Pick<TestApp, 'dataSource' | 'publisher'>): Promise<unknown[]> {
  return Promise.all(
    Array.from({ length: 20 }, () => dataSource.transaction(() => publisher.publish(type, { early: true }))),
  );
}

describeWithPgbouncer('what the boot gate says of PgBouncer', () => {
  const { stage, pooler, boot } = usePooledStage();
  const providers = () => [subscriber(type, 'work', (event, context) => effect(event, context))];
  const manifest = { emits: [type] };
  const worker = (options: Pick<TestAppOptions, 'url' | 'outbox' | 'typeorm'>) =>
    boot({ providers: providers(), manifest, ...options });
  const handles = async ({ publisher }: TestApp) => {
    const { id } = await publisher.publishNow(type, {});
    await eventually('it is handled', () =>
      stage.database.value<number>('SELECT count(*)::int FROM effects WHERE event_id = $1', [id]),
    );
  };

  beforeAll(async () => {
    await (await boot({ manifest, outbox: { role: 'publisher', schema: { onStart: 'migrate' } } })).close();
  });

  for (const [name, settings] of [
    ['quiet', {}],
    ['that lends sessions in turn', { server_round_robin: 1 }],
  ] as const)
    it(`a transaction pooler ${name}: a worker is refused, with the remedy, whichever way it leads there`, async () => {
      const { url } = await pooler(stage.database.url, { pool_mode: 'transaction', ...settings });
      const remedy = 'give the direct address of the server';
      await expect(worker({ url })).rejects.toThrow(`the DataSource's connections lead through a transaction pooler`);
      await expect(worker({ url, outbox: { infrastructure: { url } } })).rejects.toThrow(remedy);
      await expect(worker({ url: stage.database.url, outbox: { infrastructure: { url } } })).rejects.toThrow(
        'infrastructure.url leads through a transaction pooler',
      );
      const app = await worker({ url, outbox: { infrastructure: { url: stage.database.url } } });
      await handles(app);
      expect(app.log.matching(nameless)).toHaveLength(1);
    });

  it('one with a single session: the boot does not hang, a worker is refused there, and the pool is borne with a warning', async () => {
    const { url } = await pooler(stage.database.url, { pool_mode: 'transaction', default_pool_size: 1 });
    const direct = { infrastructure: { url: stage.database.url } };
    await expect(worker({ url: stage.database.url, outbox: { infrastructure: { url } } })).rejects.toThrow(
      'infrastructure.url leads through a transaction pooler (or one with a single session)',
    );
    const app = await worker({ url, outbox: direct });
    expect(app.log.matching(/no second session of the server.*raise its pool size/)).toHaveLength(1);
    for (let n = 0; n < 5; n++) await handles(app);
  });

  it('a session pool with too few sessions: likewise', async () => {
    const { url } = await pooler(stage.database.url, { pool_mode: 'session', default_pool_size: 1 });
    await expect(worker({ url: stage.database.url, outbox: { infrastructure: { url } } })).rejects.toThrow(
      'or one with a single session',
    );
  });

  it('a publisher with a single connection, and one that publishes before the gate has looked, use no names', async () => {
    const { url } = await pooler(stage.database.url, { pool_mode: 'transaction', server_round_robin: 1 });
    const single = await boot({ url, manifest, outbox: { role: 'publisher' }, typeorm: { poolSize: 1 } });
    const early = await boot({ url, manifest, outbox: { role: 'publisher' }, providers: [Early] });
    const many = await Promise.all([single, early, early].map((app) => burst(app)));
    expect(many.flat()).toHaveLength(60);
  });

  it('one that gives up on a client says so with 08P01, FATAL: an outage', async () => {
    const { url } = await pooler(stage.database.url, {
      pool_mode: 'transaction',
      default_pool_size: 1,
      query_wait_timeout: 1,
    });
    const [one, other] = [new Client({ connectionString: url }), new Client({ connectionString: url })];
    await one.connect();
    await other.connect();
    other.on('error', () => {});
    await one.query('BEGIN');
    await expect(other.query('BEGIN')).rejects.toMatchObject({ code: '08P01', severity: 'FATAL' });
    await one.end();
  });

  it('session pooling is accepted, with names', async () => {
    const { url } = await pooler(stage.database.url, { pool_mode: 'session' });
    const app = await worker({ url });
    await handles(app);
    expect(app.log.matching(/pooler/)).toEqual([]);
  });
});
