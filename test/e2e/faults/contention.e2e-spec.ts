import { Injectable } from '@nestjs/common';
import { InjectDataSource } from '@nestjs/typeorm';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { Client } from 'pg';
import type { DataSource } from 'typeorm';
import { eventually, gate } from '../../support/eventually.js';
import type { TestApp } from '../../support/test-app.js';
import { FaultSite } from './fault-site.js';

type Work = (context: DeliveryContext, event: OutboxEvent, dataSource: DataSource) => Promise<unknown>;

/** Trouble that comes from others' transactions, not from the event: it uses up no attempt. */
describe('contention is not a failure', () => {
  let site: FaultSite;

  beforeEach(async () => {
    site = await FaultSite.open();
  });

  afterEach(() => site?.close());

  function boot(work: Work): Promise<TestApp> {
    @Injectable()
    class Worker {
      constructor(@InjectDataSource() private readonly dataSource: DataSource) {}

      @Subscribe('test.work.asked', 'worker', { backoff: ['200ms'] })
      async run(event: OutboxEvent, context: DeliveryContext): Promise<void> {
        await context.manager.query('INSERT INTO effects (event_id, attempt) VALUES ($1, $2)', [
          event.id,
          context.attempt,
        ]);
        await work(context, event, this.dataSource);
      }
    }
    return site.app({ providers: [Worker], outbox: { drain: '5s' } });
  }

  const publish = async (app: TestApp, payload: object) =>
    (await app.publisher.publishNow('test.work.asked', payload)).id;
  const databaseDefault = (setting: string) =>
    site.database.query(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ${setting}', current_database()); END $$`);

  it('two handlers that deadlock both succeed, and neither is charged', async () => {
    await site.database.query(
      'CREATE TABLE accounts (id int PRIMARY KEY, n int); INSERT INTO accounts VALUES (1, 0), (2, 0)',
    );
    let runs = 0;
    const both = gate();
    const app = await boot(async (context, event) => {
      const [first, second] = (event.payload as { order: number[] }).order;
      const update = (id: unknown) => context.manager.query('UPDATE accounts SET n = n + 1 WHERE id = $1', [id]);
      await update(first);
      if (++runs === 2) both.open();
      await both.passed;
      await update(second);
    });
    const ids = [await publish(app, { order: [1, 2] }), await publish(app, { order: [2, 1] })];
    await site.handledOnce(ids);
    expect(runs).toBeGreaterThan(2);
    expect(await site.database.query('SELECT n FROM accounts')).toEqual([{ n: 2 }, { n: 2 }]);
    expect(await site.attemptsCharged()).toBe(0);
    expect(await site.interruptions()).toEqual({});
  });

  it('a claim that meets a locked delivery is tried again, and the handler begins only then', async () => {
    let runs = 0;
    const held = gate();
    const app = await boot(async (_, event) => {
      runs += 1;
      if ((event.payload as { hold?: boolean }).hold) await held.passed;
    });
    // Four that hold all slots, so that the fifth waits in memory and can be locked before it is claimed.
    const holding = await Promise.all(Array.from({ length: 4 }, () => publish(app, { hold: true })));
    await eventually('four run', () => runs === 4);
    const id = await publish(app, {});
    const other = new Client({ connectionString: site.database.url });
    await other.connect();
    await eventually('it is leased', async () => {
      const { rows } = await other.query('SELECT 1 FROM outbox.deliveries WHERE event_id = $1 AND lease IS NOT NULL', [
        id,
      ]);
      return rows.length === 1;
    });
    await other.query('BEGIN');
    await other.query('SELECT 1 FROM outbox.deliveries WHERE event_id = $1 FOR UPDATE', [id]);
    held.open();
    await site.handledOnce(holding);
    await eventually('the claim waits for the lock', async () => {
      return await site.database.value(
        `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
    });
    expect(runs).toBe(4);
    await other.query('ROLLBACK');
    await other.end();
    await site.handledOnce([id]);
    expect(runs).toBe(5);
    expect(await site.attemptsCharged()).toBe(0);
  });

  it('defaults of the database that would break it are overruled: REPEATABLE READ, and commits that do not reach the disk', async () => {
    await databaseDefault(`default_transaction_isolation = ''repeatable read''`);
    await databaseDefault('synchronous_commit = off');
    const seen: unknown[] = [];
    const app = await boot(async (context) => {
      const [row] = await context.manager.query(
        `SELECT current_setting('transaction_isolation') AS isolation, current_setting('synchronous_commit') AS flushed`,
      );
      seen.push(row);
    });
    const ids = await Promise.all(Array.from({ length: 20 }, () => publish(app, {})));
    await site.handledOnce(ids);
    expect(seen).toEqual(Array(20).fill({ isolation: 'read committed', flushed: 'on' }));
  });

  it('handlers that need a second connection each do not wait for one another for ever', async () => {
    const app = await boot(async (context, _event, dataSource) => {
      await dataSource.transaction((manager) => manager.query('SELECT pg_sleep(0.01)'));
      await context.manager.query('SELECT 1');
    });
    const ids: string[] = [];
    // Publishers use the same pool meanwhile, so that somebody always waits for it when a handler commits.
    await Promise.all(
      Array.from({ length: 10 }, async () => {
        for (let i = 0; i < 20; i++) ids.push(await publish(app, {}));
      }),
    );
    await site.handledOnce(ids);
    expect(await site.attemptsCharged()).toBe(0);
    expect(await site.interruptions()).toEqual({});
    // Nothing but that such a transaction is one of its own.
    expect(app.log.matching(/^(warn|error)/)).toEqual([expect.stringContaining('dataSource.transaction(…) at ')]);
  });
});
