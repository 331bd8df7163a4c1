import { eventually } from '../support/eventually.js';
import { itOfRows } from '../support/of-rows.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const manifest = { emits: ['a.hang.asked', 'a.invoice.paid'] };

/** An event that was interrupted three times, and whose handler neither ends nor minds its signal. */
async function suspect(stage: ReturnType<typeof useStage>): Promise<void> {
  await stage.database.query(
    `INSERT INTO outbox.deliveries (event_id, durable, interruptions)
     SELECT e.id, d.id, 3 FROM outbox.events e, outbox.durables d WHERE e.type = 'a.hang.asked' AND d.name = 'hanging'`,
  );
}

describe('a handler that runs alone and never ends', () => {
  const stage = useStage();

  it('is cut off at its timeout, and the process goes on with everything else', async () => {
    let runs = 0;
    const hang = (): Promise<void> => {
      runs += 1;
      return new Promise(() => {});
    };
    const app = await stage.boot({
      manifest,
      outbox: { drain: '500ms' },
      providers: [
        subscriber('a.invoice.paid', 'ledger', effect),
        subscriber('a.hang.asked', 'hanging', hang, { timeout: '300ms', maxAttempts: 1 }),
      ],
    });
    const api = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    await stage.database.query("UPDATE outbox.durables SET state = 'retired' WHERE name = 'hanging'");
    await api.publisher.publishNow('a.hang.asked', {});
    await stage.settled();
    await suspect(stage);
    await eventually('it ran alone', () => runs === 1);
    await eventually('it is a dead letter', () =>
      stage.database.value<boolean>('SELECT count(*) = 1 FROM outbox.dead_letters'),
    );
    await api.publisher.publishNow('a.invoice.paid', {});
    await eventually('another event is handled', () =>
      stage.database.value<boolean>('SELECT count(*) = 1 FROM effects'),
    );
    const began = performance.now();
    await app.close();
    expect(performance.now() - began).toBeLessThan(8_000);
  });
});

describe('a stop while a delivery runs alone', () => {
  const stage = useStage();

  it('ends within the drain, not at the handler’s timeout', async () => {
    let runs = 0;
    const hang = (): Promise<void> => {
      runs += 1;
      return new Promise(() => {});
    };
    const app = await stage.boot({
      manifest,
      outbox: { drain: '500ms' },
      providers: [subscriber('a.hang.asked', 'hanging', hang, { timeout: '1h' })],
    });
    await stage.database.query("UPDATE outbox.durables SET state = 'retired' WHERE name = 'hanging'");
    await app.publisher.publishNow('a.hang.asked', {});
    await stage.settled();
    await suspect(stage);
    await eventually('it runs alone', () => runs === 1);
    const began = performance.now();
    await app.close();
    expect(performance.now() - began).toBeLessThan(8_000);
    expect(await stage.database.query('SELECT attempt, interruptions, lease FROM outbox.deliveries')).toEqual([
      { attempt: 0, interruptions: 3, lease: null },
    ]);
  });
});

describe('a stop while a delivery waits for a connection of the pool', () => {
  const stage = useStage();

  itOfRows('hands it back uncharged: its handler does not start any more', async () => {
    const runs: string[] = [];
    const manifest = { emits: ['a.invoice.paid'] };
    const app = await stage.boot({
      manifest,
      typeorm: { poolSize: 3 },
      providers: [subscriber('a.invoice.paid', 'late', (event) => void runs.push(event.id))],
    });
    const api = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    const runners = [1, 2, 3].map(() => app.dataSource.createQueryRunner());
    for (const runner of runners) await runner.connect();
    await api.publisher.publishNow('a.invoice.paid', {});
    await eventually('it is leased', () =>
      stage.database.value('SELECT count(*)::int FROM outbox.deliveries WHERE lease IS NOT NULL'),
    );
    const closing = app.close();
    for (const runner of runners) await runner.release();
    await closing;
    expect(runs).toEqual([]);
    const rows = await stage.database.query('SELECT lease, attempt, interruptions FROM outbox.deliveries');
    expect(rows).toEqual([{ lease: null, attempt: 0, interruptions: 0 }]);
  });
});
