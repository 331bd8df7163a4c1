import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const event = 'billing.invoice.paid';

describe('a crash loses nothing that was being leased', () => {
  const stage = useStage();

  it('what a dead worker’s backend still commits after its death was seen is handled by another', async () => {
    const app = await stage.boot({
      providers: [subscriber(event, 'ledger', (given, ctx) => effect(given, ctx))],
      manifest: { emits: [event] },
    });
    const runner = app.dataSource.createQueryRunner();
    await runner.connect();
    try {
      // The fan-out of a worker that is killed now: its backend has the whole message and will commit it.
      const dead = await stage.database.value<number>(
        `INSERT INTO outbox.workers (app) VALUES ('killed') RETURNING id`,
      );
      await runner.startTransaction();
      const { id } = await app.publisher.with(runner).publish(event, {});
      await runner.query('DELETE FROM outbox.queue WHERE event_id = $1', [id]);
      await runner.query(
        `INSERT INTO outbox.deliveries (event_id, durable, lease) SELECT $1::uuid, d.id, $2::int FROM outbox.durables d WHERE d.name = 'ledger'`,
        [id, dead],
      );
      // Its lock is free; a sweep has found nothing leased to it, because nothing of it is committed.
      await eventually('a sweep has seen that the worker is gone', () =>
        stage.database.value<boolean>(
          'SELECT NOT EXISTS (SELECT 1 FROM outbox.workers WHERE id = $1 AND gone_at IS NULL)',
          [dead],
        ),
      );
      await runner.commitTransaction();
      await eventually(
        'the event is handled',
        () => stage.database.value<boolean>('SELECT EXISTS (SELECT 1 FROM effects WHERE event_id = $1)', [id]),
        45_000,
      );
      await eventually(
        'the dead worker’s row goes',
        () => stage.database.value<boolean>('SELECT NOT EXISTS (SELECT 1 FROM outbox.workers WHERE id = $1)', [dead]),
        45_000,
      );
    } finally {
      if (runner.isTransactionActive) await runner.rollbackTransaction();
      await runner.release();
    }
  });
});
