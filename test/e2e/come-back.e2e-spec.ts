import { Client } from 'pg';
import { eventually, gate } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const type = 'test.work.asked';
/** Polls never come in these tests. */
const rarely = { relay: { poll: '1h' } } as const;

describe('what comes back uncharged is tried again in time, however far apart the polls are', () => {
  const stage = useStage();
  const effects = (id: string) =>
    stage.database.value<number>('SELECT count(*)::int FROM effects WHERE event_id = $1', [id]);

  it('a delivery whose connection was ended under its handler', async () => {
    let runs = 0;
    const app = await stage.boot({
      manifest: { emits: [type] },
      outbox: rarely,
      providers: [
        subscriber(type, 'cut', async (event, context) => {
          await effect(event, context);
          if (++runs === 1) await context.manager.query('SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)');
        }),
      ],
    });
    const { id } = await app.publisher.publishNow(type, {});
    await eventually('it is handled', () => effects(id));
    expect(runs).toBe(2);
    await app.close();
  });

  it('one whose claim met a lock', async () => {
    const running = gate();
    const held = gate();
    const app = await stage.boot({
      manifest: { emits: ['test.hold.asked', 'test.wait.asked'] },
      outbox: { ...rarely, handlers: { concurrency: 1 } },
      providers: [
        subscriber('test.hold.asked', 'holds', async () => {
          running.open();
          await held.passed;
        }),
        subscriber('test.wait.asked', 'waits', effect),
      ],
    });
    await app.publisher.publishNow('test.hold.asked', {});
    await running.passed;
    const { id } = await app.publisher.publishNow('test.wait.asked', {});
    await eventually('it waits in memory', () =>
      stage.database.value<number>('SELECT count(*)::int FROM outbox.deliveries WHERE event_id = $1 AND lease > 0', [
        id,
      ]),
    );
    const other = new Client({ connectionString: stage.database.url });
    await other.connect();
    await other.query('BEGIN');
    await other.query('SELECT 1 FROM outbox.deliveries WHERE event_id = $1 FOR UPDATE', [id]);
    held.open();
    await eventually('what came of its claim waits to be recorded', () =>
      stage.database.value<number>(
        `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
          AND application_name = 'nestjs-outbox records'`,
      ),
    );
    await other.query('ROLLBACK');
    await other.end();
    await eventually('it is handled', () => effects(id));
    await app.close();
  });
});
