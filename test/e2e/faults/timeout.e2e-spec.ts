import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, type OutboxOptions, Subscribe } from 'nestjs-outbox';
import { eventually, gate } from '../../support/eventually.js';
import { FaultSite } from './fault-site.js';

type Work = (context: DeliveryContext, event: OutboxEvent) => Promise<unknown>;

/** The library's own bound on handlers in these tests: no handler that does its work and ends may come near it. */
const timeoutMs = 1_500;

describe('a handler that does not end', () => {
  let site: FaultSite;
  /** What each test left hanging, let go at its end. */
  let end: ReturnType<typeof gate<void>>;

  beforeEach(async () => {
    site = await FaultSite.open();
    end = gate();
  });

  afterEach(async () => {
    end.open();
    await site?.close();
  });

  const sleeping = () =>
    site.database.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep(60)%' AND state = 'active' AND pid <> pg_backend_pid()`,
    );
  const attempts = () =>
    site.database.query<{ n: number; error: string }>('SELECT n, error FROM outbox.attempts ORDER BY n');

  /** An app whose handler does `work` at the first attempt, and nothing after it. */
  function boot(work: Work, options: { maxAttempts?: number; outbox?: OutboxOptions } = {}) {
    const runs: number[] = [];
    @Injectable()
    class Worker {
      @Subscribe('test.work.asked', 'worker', {
        backoff: ['100ms'],
        timeout: `${timeoutMs}ms`,
        maxAttempts: options.maxAttempts ?? 3,
      })
      async run(event: OutboxEvent<{ hang?: boolean }>, context: DeliveryContext): Promise<void> {
        runs.push(context.attempt);
        await context.manager.query('INSERT INTO effects (event_id, attempt) VALUES ($1, $2)', [
          event.id,
          context.attempt,
        ]);
        if (event.payload.hang && context.attempt === 1) await work(context, event);
      }
    }
    return site
      .app({ providers: [Worker], outbox: { drain: '1s', ...options.outbox } })
      .then((app) => ({ ...app, runs, hang: () => publish(app, { hang: true }), pass: () => publish(app, {}) }));
  }

  const publish = async (app: Awaited<ReturnType<FaultSite['app']>>, payload: object) =>
    (await app.publisher.publishNow('test.work.asked', payload)).id;

  it('has its signal aborted and its backend ended; one attempt is charged, and the next one succeeds', async () => {
    const aborted = gate<unknown>();
    const app = await boot(async (context) => {
      context.signal.addEventListener('abort', () => aborted.open(context.signal.reason));
      await context.manager.query('SELECT pg_sleep(60)');
    });
    const id = await app.hang();
    await eventually('it sleeps in the database', async () => (await sleeping()).length === 1);
    expect(await aborted.passed).toMatchObject({ code: 'OUTBOX_HANDLER_TIMEOUT', eventId: id, durable: 'worker' });
    await eventually('its backend is gone', async () => (await sleeping()).length === 0);
    await site.handledOnce([id]);
    expect(app.runs).toEqual([1, 2]);
    expect(await attempts()).toEqual([{ n: 1, error: expect.stringMatching(/^HandlerTimeoutError/) }]);
    expect(await site.interruptions()).toEqual({});
    expect(await site.database.value('SELECT attempt FROM effects')).toBe(2);
  });

  it('writes nothing more through its manager', async () => {
    const late = gate<unknown>();
    const app = await boot(async (context, event) => {
      await new Promise<void>((resolve) => context.signal.addEventListener('abort', () => resolve()));
      await eventually('the attempt is recorded', async () => (await attempts()).length === 1);
      const write = context.manager.query('INSERT INTO effects (event_id, attempt) VALUES ($1, -1)', [event.id]);
      late.open(
        await write.then(
          () => 'written',
          (error: unknown) => error,
        ),
      );
    });
    const id = await app.hang();
    expect(await late.passed).toBeInstanceOf(Error);
    await site.handledOnce([id]);
  });

  it('keeps its slot until its promise settles, and others go on beside it', async () => {
    const app = await boot(() => end.passed, { outbox: { drain: '1s', handlers: { concurrency: 2 } } });
    const stuck = await app.hang();
    await eventually('the attempt is recorded', async () => (await attempts()).length === 1);
    await site.handledOnce([stuck]);
    const [first, second] = [await app.hang(), await app.pass()];
    // Both slots are taken by promises that do not settle: nothing more is started in this process.
    await eventually('the second hangs', async () => (await attempts()).length === 2);
    const third = await app.pass();
    await eventually(
      'it has left the queue',
      async () => (await site.database.query('TABLE outbox.queue')).length === 0,
    );
    const started = app.runs.length;
    expect(started).toBeLessThanOrEqual(4);
    end.open();
    await site.handledOnce([stuck, first, second, third]);
  });

  it('at its last attempt is a dead letter', async () => {
    const app = await boot((context) => context.manager.query('SELECT pg_sleep(60)'), { maxAttempts: 1 });
    const id = await app.hang();
    await eventually('the dead letter', () => site.database.value('SELECT count(*)::int FROM outbox.dead_letters'));
    expect(await site.database.query('SELECT event_id, attempts, error FROM outbox.dead_letters')).toEqual([
      { event_id: id, attempts: 1, error: expect.stringMatching(/^HandlerTimeoutError/) },
    ]);
    expect(await site.database.value(`SELECT verdict::text FROM outbox.handled WHERE event_id = $1`, [id])).toBe('x');
    expect(await site.database.value('SELECT count(*)::int FROM effects')).toBe(0);
    expect(app.runs).toEqual([1]);
    await app.close();
  });

  describe('where the library may not end the backends of handlers', () => {
    let url: string;

    // The infrastructure connections belong to another ordinary role, which is no member of pg_signal_backend.
    beforeEach(async () => {
      const role = `weak_${Math.random().toString(36).slice(2, 10)}`;
      await site.database.query(`
        CREATE ROLE ${role} LOGIN PASSWORD 'weak';
        GRANT USAGE ON SCHEMA outbox TO ${role};
        GRANT ALL ON ALL TABLES IN SCHEMA outbox TO ${role};
        GRANT ALL ON ALL SEQUENCES IN SCHEMA outbox TO ${role};
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outbox TO ${role};
        GRANT ALL ON charges TO ${role}`);
      const weak = new URL(site.database.url);
      weak.username = role;
      weak.password = 'weak';
      url = weak.href;
    });

    afterEach(async () => {
      const role = new URL(url).username;
      await site.database.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    });

    it('the attempt is recorded when the statement ends, a line says why, and others are handled meanwhile', async () => {
      // Until the test lets it end.
      await site.database.query('SELECT pg_advisory_lock(1, 2)');
      const app = await boot((context) => context.manager.query('SELECT pg_advisory_xact_lock(1, 2)'), {
        outbox: { drain: '1s', infrastructure: { url } },
      });
      const id = await app.hang();
      await eventually('the line', () => app.log.matching(/could not be ended: permission denied/).length > 0);
      const others = await Promise.all(Array.from({ length: 5 }, () => app.pass()));
      await site.handledOnce(others);
      expect(await attempts()).toEqual([]);
      await site.database.query('SELECT pg_advisory_unlock(1, 2)');
      await site.handledOnce([id]);
      expect(app.runs.filter((attempt) => attempt === 2)).toEqual([2]);
      expect(await attempts()).toEqual([{ n: 1, error: expect.stringMatching(/^HandlerTimeoutError/) }]);
      await app.close();
    });

    it('the retries of others do not wait for that statement', async () => {
      let failed = false;
      const app = await boot(
        async (context, event) => {
          if ((event.payload as { fail?: boolean }).fail) {
            failed = true;
            throw new Error('asked to fail');
          }
          await context.manager.query('SELECT pg_advisory_xact_lock(1, 2)');
        },
        { outbox: { drain: '1s', infrastructure: { url } } },
      );
      const others: string[] = [];
      /** How long it takes four to fail, one after the other, and each to be handled in its second attempt. */
      const retried = async (): Promise<number> => {
        const begin = performance.now();
        for (let i = 0; i < 4; i++) {
          failed = false;
          others.push(await publish(app, { hang: true, fail: true }));
          await eventually('it failed', () => failed);
          await site.handledOnce(others);
        }
        return performance.now() - begin;
      };
      const before = await retried();
      await site.database.query('SELECT pg_advisory_lock(1, 2)');
      const id = await app.hang();
      await eventually('the line', () => app.log.matching(/could not be ended: permission denied/).length > 0);
      // Records wait for a lock for a second each, and what waited with them would wait as long each time.
      expect(await retried()).toBeLessThan(2 * before + 2_500);
      await site.database.query('SELECT pg_advisory_unlock(1, 2)');
      await site.handledOnce([id, ...others]);
    });

    it('a stop that cuts off such a handler leaves its worker to the sweeps, which bring the delivery back', async () => {
      const app = await boot((context) => context.manager.query('SELECT pg_sleep(5)'), {
        outbox: { drain: '50ms', infrastructure: { url } },
      });
      const id = await app.hang();
      await eventually('it runs', () => app.runs.length === 1);
      await app.close();
      const worker = await site.worker();
      await worker.started(id);
      await site.handledOnce([id]);
    });
  });
});
