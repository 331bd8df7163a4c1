import { eventually } from '../support/eventually.js';
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
