import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { bootApp, type TestApp } from '../support/test-app.js';
import { createDatabase, type TestDatabase } from '../support/test-database.js';

@Injectable()
class Work {
  @Subscribe('test.work.asked', 'work', { backoff: ['50ms'], maxAttempts: 20 })
  async run(event: OutboxEvent<{ sql?: string }>, context: DeliveryContext): Promise<void> {
    await context.manager.query('INSERT INTO effects (event_id, tenant) VALUES ($1, $2)', [event.id, context.tenantId]);
    if (event.tenantId === 'broken') throw new Error('this tenant always fails');
    if (event.payload.sql) await context.manager.query(event.payload.sql);
  }

  @Subscribe('test.hang.asked', 'hang', { timeout: '3s', maxAttempts: 1, concurrency: 1 })
  async hang(_: OutboxEvent, context: DeliveryContext): Promise<void> {
    // Ignores its signal for longer than its time limit.
    await context.manager.query('SELECT pg_sleep(30)');
    await pause(10);
  }
}

describe('one bad event, tenant or handler stops nobody else', () => {
  let database: TestDatabase;
  let app: TestApp;

  beforeAll(async () => {
    database = await createDatabase();
    await database.query('CREATE TABLE effects (event_id uuid, tenant text)');
    const manifest = { emits: ['test.work.asked', 'test.hang.asked'] };
    app = await bootApp({ url: database.url, providers: [Work], manifest });
  });

  afterAll(async () => {
    await app?.close();
    await database?.drop();
  });

  const effects = (tenant: string) =>
    database.value<number>('SELECT count(*)::int FROM effects WHERE tenant = $1', [tenant]);

  async function publishFor(tenant: string, count: number, payload: object = {}): Promise<void> {
    const events = Array.from({ length: count }, () => ({ event: 'test.work.asked', payload, tenantId: tenant }));
    await app.dataSource.transaction(() => app.publisher.publishMany(events));
  }

  it('a tenant whose every event fails', async () => {
    await publishFor('broken', 100);
    await publishFor('healthy', 100);
    await eventually('the healthy tenant is served', async () => (await effects('healthy')) === 100);
    expect(await effects('broken')).toBe(0);
    expect(await database.value<number>('SELECT count(*)::int FROM outbox.deliveries')).toBeGreaterThan(0);
  });

  it('an event whose SQL ends its own session', async () => {
    await publishFor('suicidal', 1, { sql: 'SELECT pg_terminate_backend(pg_backend_pid())' });
    await publishFor('neighbour', 50);
    await eventually('the neighbour is served', async () => (await effects('neighbour')) === 50);
    expect(await effects('suicidal')).toBe(0);
  });

  it('a handler that hangs takes its slot and no other', async () => {
    await app.publisher.publishNow('test.hang.asked', {});
    await eventually('it hangs', () =>
      database.value(
        "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep(30)%' AND state = 'active' AND pid <> pg_backend_pid()",
      ),
    );
    await publishFor('beside', 50);
    await eventually('what is beside it is served', async () => (await effects('beside')) === 50);
    await eventually('it ends as a dead letter', () => database.value('SELECT count(*)::int FROM outbox.dead_letters'));
  });

  it('a row of the queue whose event is gone', async () => {
    await database.query("INSERT INTO outbox.queue (event_id) VALUES ('019a0000-0000-7000-8000-000000000000')");
    await publishFor('after-orphan', 10);
    await eventually('what came after it is served', async () => (await effects('after-orphan')) === 10);
    await eventually(
      'it has left the queue',
      async () => (await database.value<number>('SELECT count(*)::int FROM outbox.queue')) === 0,
    );
  });
});
