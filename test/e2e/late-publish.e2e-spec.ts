import { setTimeout as pause } from 'node:timers/promises';
import { defineEvent } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { subscriber, useStage } from '../support/stage.js';

/** A schema that takes its time, as one that asks somebody does. */
const Slow = defineEvent('a.slow.checked', {
  '~standard': {
    version: 1,
    vendor: 'test',
    validate: async (value: unknown) => {
      await pause(50);
      return { value };
    },
  },
});

describe('a transaction that fails while publishes are under way takes them along', () => {
  const stage = useStage();
  const manifest = { emits: ['a.invoice.paid', Slow] };
  const events = () => stage.database.value<number>('SELECT count(*)::int FROM outbox.events');

  it('parallel publishes beside something that fails', async () => {
    const app = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    let publishes: Promise<unknown>[] = [];
    const failing = app.dataSource.transaction(async () => {
      publishes = [1, 2, 3, 4].map((n) => app.publisher.publish('a.invoice.paid', { n }));
      await Promise.all([...publishes, Promise.reject(new Error('boom'))]);
    });
    await expect(failing).rejects.toThrow('boom');
    await Promise.allSettled(publishes);
    expect(await events()).toBe(0);
  });

  it('in a savepoint, without the transaction around it', async () => {
    const app = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    const before = await events();
    let publishes: Promise<unknown>[] = [];
    await app.dataSource.transaction(async (manager) => {
      await app.publisher.publish('a.invoice.paid', { n: 0 });
      const nested = manager.transaction(async () => {
        publishes = [app.publisher.publish(Slow, {}), app.publisher.publish('a.invoice.paid', { n: 1 })];
        await Promise.all([...publishes, Promise.reject(new Error('boom'))]);
      });
      await expect(nested).rejects.toThrow('boom');
      // And one that goes well without being awaited belongs to it.
      await manager.transaction(async () => void app.publisher.publish(Slow, {}));
    });
    await Promise.allSettled(publishes);
    expect(await events()).toBe(before + 2);
    await stage.database.query('DELETE FROM outbox.queue');
    await stage.database.query('DELETE FROM outbox.events');
  });

  it('a publish whose schema takes its time', async () => {
    const app = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    let slow: Promise<unknown> | undefined;
    const failing = app.dataSource.transaction(async () => {
      slow = app.publisher.publish(Slow, { n: 1 });
      await Promise.all([slow, Promise.reject(new Error('boom'))]);
    });
    await expect(failing).rejects.toThrow('boom');
    await Promise.allSettled([slow]);
    expect(await events()).toBe(0);
  });

  it('with(queryRunner): its rollback overtakes no publish', async () => {
    const app = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    const runner = app.dataSource.createQueryRunner();
    await runner.startTransaction();
    const publisher = app.publisher.with(runner);
    const publishes = [1, 2, 3].map((n) => publisher.publish('a.invoice.paid', { n }));
    const slow = publisher.publish(Slow, { n: 4 });
    await runner.rollbackTransaction();
    await runner.release();
    await Promise.allSettled([...publishes, slow]);
    expect(await events()).toBe(0);
  });

  it('in a handler', async () => {
    let publishes: Promise<unknown>[] = [];
    const app = await stage.boot({
      manifest: { emits: [...manifest.emits, 'a.failing.asked'] },
      providers: [
        subscriber(
          'a.failing.asked',
          'failing',
          async () => {
            publishes = [1, 2, 3, 4].map((n) => app.publisher.publish('a.invoice.paid', { n }));
            publishes.push(app.publisher.publish(Slow, { n: 5 }));
            await Promise.all([...publishes, Promise.reject(new Error('boom'))]);
          },
          { maxAttempts: 1 },
        ),
      ],
    });
    await app.publisher.publishNow('a.failing.asked', {});
    await eventually('it ran', () => publishes.length === 5);
    await Promise.allSettled(publishes);
    await stage.drained();
    expect(await events()).toBe(1);
  });
});
