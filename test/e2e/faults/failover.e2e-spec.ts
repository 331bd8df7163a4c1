import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { Client } from 'pg';
import { eventually } from '../../support/eventually.js';
import { ServerProcess } from '../../support/server-process.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import type { TestApp } from '../../support/test-app.js';
import { FaultSite } from './fault-site.js';

const type = 'test.work.asked';
const spellMs = Number(process.env['OUTAGE_SECONDS'] ?? 3) * 1_000;

@Injectable()
class Work {
  @Subscribe(type, 'worker', { backoff: ['200ms'] })
  async run(event: OutboxEvent<{ ms?: number }>, context: DeliveryContext): Promise<void> {
    await context.manager.query('INSERT INTO effects (event_id, attempt) VALUES ($1, $2)', [event.id, context.attempt]);
    await pause(event.payload.ms ?? 5, undefined, { ref: false });
  }
}

/** Three publishers that go on whatever they meet. */
class Load {
  /** Of events whose COMMIT was answered. */
  readonly committed: string[] = [];
  readonly errors = new Set<string>();
  private going = true;
  private readonly publishers: Promise<void>[];

  constructor(app: TestApp) {
    this.publishers = Array.from({ length: 3 }, async () => {
      while (this.going)
        try {
          this.committed.push((await app.publisher.publishNow(type, {})).id);
          await pause(2);
        } catch (error) {
          this.errors.add(String((error as { code?: string }).code ?? error));
          await pause(50);
        }
    });
  }

  more(count: number): Promise<unknown> {
    const before = this.committed.length;
    return eventually(`${count} more are published`, () => this.committed.length > before + count, 30_000);
  }

  async end(): Promise<void> {
    this.going = false;
    await Promise.all(this.publishers);
  }
}

const stored = async (site: FaultSite) =>
  (await site.database.query<{ id: string }>('SELECT id FROM outbox.events')).map(({ id }) => id);

async function nothingCharged(site: FaultSite, cuts: number): Promise<void> {
  expect(await site.attemptsCharged()).toBe(0);
  expect(await site.database.query('SELECT * FROM outbox.dead_letters')).toEqual([]);
  // A run that was cut off is an interruption.
  for (const n of Object.values(await site.interruptions())) expect(n).toBeLessThanOrEqual(cuts);
}

describe('a server that refuses for a while', () => {
  let server: ServerProcess;
  let site: FaultSite;
  let app: TestApp;
  let load: Load;

  beforeAll(async () => {
    server = await ServerProcess.start();
  });
  afterAll(() => server?.stop());

  beforeEach(async () => {
    site = await FaultSite.open(server.url);
    app = await site.app({ providers: [Work] });
    await site.app({ providers: [Work] });
    load = new Load(app);
    await load.more(50);
  });
  afterEach(async () => {
    await load?.end();
    await site?.close();
  });

  const comesBack = async (cuts: number) => {
    await load.more(50);
    await load.end();
    const ids = await stored(site);
    expect(ids).toEqual(expect.arrayContaining(load.committed));
    await site.handledOnce(ids);
    await nothingCharged(site, cuts);
    // An outage is a warning.
    expect(app.log.matching(/^error/)).toEqual([]);
  };
  const own = `datname = current_database() AND pid <> pg_backend_pid()`;

  it('because it has turned read-only (25006): its connections are given up, and work resumes by itself', async () => {
    const readOnly = async (on: boolean) => {
      await site.database.query(`ALTER SYSTEM SET default_transaction_read_only = ${on}`);
      await site.database.query('SELECT pg_reload_conf()');
    };
    const sessions = async () =>
      (await site.database.query<{ pid: number }>(`SELECT pid FROM pg_stat_activity WHERE ${own}`)).map((s) => s.pid);
    const before = await sessions();
    await readOnly(true);
    try {
      await eventually('publishers are refused', () => load.errors.has('25006'));
      await pause(spellMs);
      const infrastructure = `application_name IN ('nestjs-outbox relay', 'nestjs-outbox worker')`;
      await eventually('the connections of the loops are others', () =>
        site.database.value<boolean>(
          `SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE ${own} AND ${infrastructure} AND pid = ANY ($1))`,
          [before],
        ),
      );
    } finally {
      await readOnly(false);
    }
    await comesBack(1);
  });

  it('because others have taken all connections (53300), after ours were ended (57P01)', async () => {
    const taken: Client[] = [];
    const rounds = 4;
    const takeAll = async () => {
      for (;;) {
        const client = new Client({ connectionString: server.url });
        client.on('error', () => {});
        try {
          await client.connect();
        } catch (error) {
          expect(error).toMatchObject({ code: '53300' });
          return;
        }
        taken.push(client);
      }
    };
    try {
      await takeAll();
      // Each that is ended makes room for one of either side; in the end nearly all is taken.
      for (let n = 0; n < rounds; n++) {
        await site.database.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${own} AND random() < 0.9`,
        );
        await takeAll();
      }
      await eventually('publishers are refused', () => load.errors.has('53300'));
      await pause(spellMs);
    } finally {
      await Promise.all(taken.map((client) => client.end()));
    }
    await comesBack(rounds);
  });
});

describe('a standby is promoted under load', () => {
  let server: ServerProcess;
  let proxy: TcpProxy;
  let site: FaultSite;
  let standby: string;

  beforeEach(async () => {
    server = await ServerProcess.start();
    standby = await server.standby();
    proxy = await TcpProxy.before(server.url);
    site = await FaultSite.open(proxy.url);
  });
  afterEach(async () => {
    try {
      await site?.close();
    } finally {
      await proxy?.close();
      await server?.stop();
    }
  });

  it('what had not reached it is gone with all that came of it; the rest is handled once there, uncharged, without a restart', async () => {
    const app = await site.app({ providers: [Work] });
    await site.worker();
    const load = new Load(app);
    await load.more(100);
    // Begun before the stream ends, over after it: their marks are lost, they themselves are not.
    const slow = await site.ask(...Array.from({ length: 12 }, () => ({ ms: 5_000 })));
    await cutStream(proxy.url, standby);
    const reached = new Set(await columnAt<string>(standby, site, 'SELECT id FROM outbox.events'));
    const marks = 'SELECT count(*)::int FROM outbox.handled WHERE event_id = ANY ($1)';
    expect((await columnAt<number>(standby, site, marks, [slow]))[0]).toBeLessThan(slow.length);
    await load.more(50);
    const done = async () => (await site.database.value<number>(marks, [slow])) === slow.length;
    await eventually('the slow ones are handled', done, 40_000);

    await server.crash();
    await server.promote();
    proxy.leadTo(standby);
    await load.more(50);
    await load.end();

    const ids = await stored(site);
    const kept = new Set(ids);
    expect(slow.filter((id) => !kept.has(id))).toEqual([]);
    const lost = load.committed.filter((id) => !kept.has(id));
    expect(lost.length).toBeGreaterThan(0);
    expect(lost.filter((id) => reached.has(id))).toEqual([]);
    for (const table of ['outbox.handled', 'outbox.deliveries', 'outbox.queue', 'effects'])
      expect(await site.database.query(`SELECT * FROM ${table} WHERE event_id = ANY ($1)`, [lost])).toEqual([]);
    await site.handledOnce(ids);
    expect(await site.attemptsCharged()).toBe(0);
    // Once at most, and not by the standby's own doing: where it answers before a process has heard that its connection
    // is gone, the database seems to have lived.
    for (const [id, n] of Object.entries(await site.interruptions())) expect([id, n]).toEqual([id, 1]);
  });
});

/** Ends the stream once the standby has all that was published. */
async function cutStream(primary: string, standby: string): Promise<void> {
  const client = new Client({ connectionString: standby });
  await client.connect();
  const source = new Client({ connectionString: primary });
  await source.connect();
  const { rows } = await source.query('SELECT pg_current_wal_lsn() AS at');
  await source.end();
  await eventually('the standby has what was published', async () => {
    return (await client.query('SELECT pg_last_wal_replay_lsn() >= $1 AS there', [rows[0].at])).rows[0].there;
  });
  await client.query('ALTER SYSTEM RESET primary_conninfo');
  await client.query('SELECT pg_reload_conf()');
  await eventually('the stream is cut', async () => {
    return (await client.query('SELECT 1 FROM pg_stat_wal_receiver')).rows.length === 0;
  });
  await client.end();
}

/** The first column of what the standby has. */
async function columnAt<T>(standby: string, site: FaultSite, sql: string, values: unknown[] = []): Promise<T[]> {
  const url = new URL(standby);
  url.pathname = new URL(site.database.url).pathname;
  const client = new Client({ connectionString: url.href });
  await client.connect();
  const { rows } = await client.query({ text: sql, values, rowMode: 'array' });
  await client.end();
  return rows.map(([value]) => value);
}
