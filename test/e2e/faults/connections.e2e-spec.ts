import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { eventually } from '../../support/eventually.js';
import type { TestApp } from '../../support/test-app.js';
import { backends, FaultSite } from './fault-site.js';

interface Work {
  readonly ms?: number;
  /** Waits inside the database, in the handler or behind its COMMIT, on the first run only. */
  readonly sql?: string;
  /** Swallows what its SQL throws. */
  readonly swallow?: boolean;
}

@Injectable()
class Worker {
  readonly ran = new Map<string, number>();

  @Subscribe('test.work.asked', 'worker', { backoff: ['200ms'] })
  async run(event: OutboxEvent<Work>, context: DeliveryContext): Promise<void> {
    const run = (this.ran.get(event.id) ?? 0) + 1;
    this.ran.set(event.id, run);
    const { ms, sql, swallow } = event.payload;
    await context.manager.query('INSERT INTO effects (event_id, attempt) VALUES ($1, $2)', [event.id, context.attempt]);
    if (ms) await pause(ms);
    if (!sql || run > 1) return;
    try {
      await context.manager.query(sql);
    } catch (error) {
      if (!swallow) throw error;
    }
  }
}

describe('losing a connection is not a failure', () => {
  let site: FaultSite;
  let app: TestApp;

  beforeEach(async () => {
    site = await FaultSite.open();
    app = await site.app({ providers: [Worker], outbox: { drain: '5s' } });
  });

  afterEach(() => site?.close());

  const worker = () => app.app.get(Worker);
  const publish = async (payload: Work) => (await app.publisher.publishNow('test.work.asked', payload)).id;
  const terminate = (pids: readonly number[]) =>
    site.database.query('SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid', [pids]);
  const number = () => site.database.value<number>('SELECT max(id) FROM outbox.workers');

  /** Publishes until `done`, several at a time, and returns what was committed. */
  async function load(done: Promise<unknown>): Promise<string[]> {
    const ids: string[] = [];
    let going = true;
    const stop = done.finally(() => {
      going = false;
    });
    const publishers = Array.from({ length: 3 }, async () => {
      while (going) ids.push(await publish({ ms: 5 }));
    });
    await Promise.all([stop, ...publishers]);
    return ids;
  }

  it.each(['relay', 'worker', 'worker lock'])(
    "the %s's, ended three times under load: it comes back by itself",
    async (name) => {
      const before = await number();
      const ids = await load(
        (async () => {
          for (let i = 0; i < 3; i++) {
            const pids = await backends(site.database, `nestjs-outbox ${name}`);
            await pause(100);
            await terminate(pids);
            await eventually('a new session', async () => {
              const now = await backends(site.database, `nestjs-outbox ${name}`);
              return now.every((pid) => !pids.includes(pid));
            });
          }
        })(),
      );
      expect(ids.length).toBeGreaterThan(50);
      await site.handledOnce(ids);
      expect([...worker().ran.values()].filter((runs) => runs > 1)).toEqual([]);
      expect(await site.attemptsCharged()).toBe(0);
      expect(await site.interruptions()).toEqual({});
      if (name === 'worker lock') expect(await number()).toBe(before + 3);
      else expect(await number()).toBe(before);
      expect(app.log.matching(new RegExp(`the ${name} connection was lost`)).length).toBeGreaterThan(0);
    },
  );

  it("the lock's: what was fetched is freed uncharged and run under a new number; what runs, ends under the old one", async () => {
    const before = await number();
    const ids = await Promise.all(Array.from({ length: 12 }, () => publish({ ms: 1_500 })));
    await eventually('four run', () => worker().ran.size === 4);
    await terminate(await backends(site.database, 'nestjs-outbox worker lock'));
    await eventually('a new number', async () => (await number()) === before + 1);
    await site.handledOnce(ids);
    expect([...worker().ran.values()]).toEqual(Array(12).fill(1));
    expect(await site.interruptions()).toEqual({});
    await eventually(
      'the old number is swept',
      async () => {
        return (await site.database.value('SELECT count(*)::int FROM outbox.workers')) === 1;
      },
      30_000,
    );
  });

  const sleeping = `query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'`;

  it.each([
    ['that lets the error out', { sql: 'SELECT pg_sleep(30)' }],
    ['that swallows the error', { sql: 'SELECT pg_sleep(30)', swallow: true }],
  ])("a handler's %s: it runs again, interrupted once, no attempt used up", async (_, work) => {
    const id = await publish(work);
    await eventually('it is ended', () =>
      site.database.value(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND ${sleeping}`,
      ),
    );
    await site.handledOnce([id]);
    expect(worker().ran.get(id)).toBe(2);
    expect(await site.interruptions()).toEqual({ [id]: 1 });
    expect(await site.attemptsCharged()).toBe(0);
    expect(await site.database.value('SELECT attempt FROM effects')).toBe(1);
  });

  it('a server that became read-only (25006) is left for one that is not: nobody stays with it', async () => {
    const readOnly = (value: 'on' | 'off') =>
      site.database.query(
        `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = ${value}', current_database()); END $$`,
      );
    await site.database.query('SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE');
    await readOnly('on');
    const names = ['relay', 'worker', 'worker lock'];
    const before = await Promise.all(names.map((name) => backends(site.database, `nestjs-outbox ${name}`)));
    await terminate(before.flat());
    await eventually('they meet it', () => app.log.matching(/read-only transaction/).length >= 2);
    await readOnly('off');
    const ids = await Promise.all(Array.from({ length: 5 }, () => publish({})));
    await site.handledOnce(ids);
    expect(await site.attemptsCharged()).toBe(0);
    await eventually(
      'it has a number again',
      async () => {
        return (await site.database.value('SELECT count(*)::int FROM outbox.workers')) === 1;
      },
      30_000,
    );
  });

  describe("a handler's during its COMMIT", () => {
    const committing = `datname = current_database() AND query LIKE 'COMMIT%' AND wait_event = 'advisory'`;

    beforeEach(() =>
      site.database.query(`
        CREATE SEQUENCE commits;
        CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF nextval('commits') = 1 THEN PERFORM pg_advisory_xact_lock_shared(1, 2); END IF; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow();
        SELECT pg_advisory_lock(1, 2)`),
    );

    const letCommit = () => site.database.query('SELECT pg_advisory_unlock(1, 2)');

    it('ended by the server: it was not committed, and runs again, interrupted once', async () => {
      const id = await publish({});
      await eventually('the COMMIT is ended', () =>
        site.database.value(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${committing}`),
      );
      await letCommit();
      await site.handledOnce([id]);
      expect(worker().ran.get(id)).toBe(2);
      expect(await site.interruptions()).toEqual({ [id]: 1 });
      expect(await site.attemptsCharged()).toBe(0);
    });

    it('cut at the client: it was committed, and is not run again', async () => {
      const id = await publish({});
      const [pid] = (await eventually('the COMMIT is under way', async () => {
        const rows = await site.database.query<{ pid: number }>(`SELECT pid FROM pg_stat_activity WHERE ${committing}`);
        return rows.length > 0 && rows.map((row) => row.pid);
      })) as number[];
      cut(app, pid ?? 0);
      await letCommit();
      await site.handledOnce([id]);
      const after = await publish({});
      await site.handledOnce([id, after]);
      expect(worker().ran.get(id)).toBe(1);
      expect(await site.attemptsCharged()).toBe(0);
    });
  });
});

/** Destroys the socket of the pool's client with that backend, as a broken network would. */
function cut(app: TestApp, pid: number): void {
  const { master } = app.dataSource.driver as unknown as {
    master: { _clients: { processID: number; connection: { stream: { destroy(): void } } }[] };
  };
  const client = master._clients.find((one) => one.processID === pid);
  if (!client) throw new Error(`no client of the pool has backend ${pid}`);
  client.connection.stream.destroy();
}
