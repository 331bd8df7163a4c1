import { Injectable } from '@nestjs/common';
import { type DeliveryContext, EventPublisher, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import type { EntitySubscriberInterface } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { bootApp, type TestApp } from '../support/test-app.js';
import { createDatabase, type TestDatabase } from '../support/test-database.js';

@Injectable()
class Echo {
  constructor(private readonly publisher: EventPublisher) {}

  @Subscribe('test.work.asked', 'first', { maxAttempts: 1 })
  async first(event: OutboxEvent<{ fail?: boolean }>, context: DeliveryContext): Promise<void> {
    if (event.payload.fail) throw new Error('asked to fail');
    await context.manager.query('SELECT 1');
    await this.publisher.publish('test.work.done', {});
  }

  @Subscribe('test.work.done', 'second')
  async second(): Promise<void> {}
}

describe("TypeORM's subscribers hear of a handler's transaction as of any other", () => {
  let database: TestDatabase;
  let app: TestApp;
  const heard: string[] = [];
  const subscriber: EntitySubscriberInterface = {
    beforeTransactionCommit: () => void heard.push('before commit'),
    afterTransactionCommit: ({ queryRunner }) => {
      if (!queryRunner.isTransactionActive) heard.push('after commit');
      if (heard.includes('throw')) throw new Error('a subscriber that fails after the fact');
    },
    afterTransactionRollback: () => void heard.push('after rollback'),
  };

  beforeAll(async () => {
    database = await createDatabase();
    const manifest = { emits: ['test.work.asked', 'test.work.done'] };
    app = await bootApp({ url: database.url, providers: [Echo], manifest, outbox: { relay: { poll: '90s' } } });
    app.dataSource.subscribers.unshift(subscriber as EntitySubscriberInterface);
  });

  afterAll(async () => {
    await app?.close();
    await database?.drop();
  });

  beforeEach(() => {
    heard.length = 0;
  });

  const handled = (count: number) =>
    eventually(
      'the marks',
      async () => (await database.value<number>('SELECT count(*)::int FROM outbox.handled')) >= count,
    );

  it('before and after the commit, and what a handler published wakes the relay', async () => {
    await app.publisher.publishNow('test.work.asked', {});
    // Polls are 90 s apart: only the wake-up after the proved commit brings the second event here in time.
    await handled(2);
    await eventually('both commits are told', () => heard.filter((h) => h === 'after commit').length >= 2);
    expect(heard.slice(0, 2)).toEqual(['before commit', 'after commit']);
  });

  it('after a rollback', async () => {
    await app.publisher.publishNow('test.work.asked', { fail: true });
    await eventually('the rollback is told', () => heard.includes('after rollback'));
    expect(heard).not.toContain('after commit');
  });

  it('and one that fails after the commit changes nothing of it', async () => {
    const before = await database.value<number>('SELECT count(*)::int FROM outbox.handled');
    heard.push('throw');
    await app.publisher.publishNow('test.work.asked', {});
    await handled(before + 2);
    await eventually('the failure is logged', () => app.log.matching(/subscriber failed/).length > 0);
    expect(await database.value('SELECT count(*)::int FROM outbox.deliveries')).toBe(0);
  });
});
