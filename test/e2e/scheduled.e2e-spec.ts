import { eventually } from '../support/eventually.js';
import { useStage } from '../support/stage.js';

describe('many events that were scheduled for the same moment', () => {
  const stage = useStage();

  it('move without a wait between the chunks, also when a pass could carry more than one', async () => {
    await stage.boot({ outbox: { relay: { batch: 2_000 } } });
    await stage.database.query(
      `INSERT INTO outbox.scheduled (id, due_at, type, payload)
       SELECT outbox.uuid7(now()), now(), 'a.invoice.paid', '{}' FROM generate_series(1, 5000)`,
    );
    // A chunk for each full poll would take 50 s.
    await eventually(
      'all are moved',
      () => stage.database.value<boolean>('SELECT count(*) = 0 FROM outbox.scheduled'),
      20_000,
    );
    await stage.settled();
    expect(await stage.database.value<number>('SELECT count(*)::int FROM outbox.events')).toBe(5_000);
  });
});
