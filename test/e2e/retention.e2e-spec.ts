import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const type = 'test.invoice.paid';

/** An event of nine days ago, handled by the one durable there is, or waiting for it. */
const old = (handled: boolean) => `
  WITH e AS (INSERT INTO outbox.events (bucket, id, type, payload) SELECT outbox.bucket(id), id, '${type}', '{}'
    FROM (SELECT outbox.uuid7(now() - interval '9 days') AS id) x RETURNING bucket, id)
  ${
    handled
      ? `INSERT INTO outbox.handled (bucket, event_id, durable, verdict) SELECT e.bucket, e.id, d.id, 'd' FROM e, outbox.durables d`
      : `INSERT INTO outbox.deliveries (event_id, durable, due_at) SELECT e.id, d.id, now() + interval '1 hour' FROM e, outbox.durables d`
  }`;

describe('the job outbox.purge runs by itself', () => {
  const stage = useStage();
  const count = (table: string) => stage.database.value<number>(`SELECT count(*)::int FROM outbox.${table}`);

  it('in one of two apps: what is finished and old goes, with its mark; the rest stays', async () => {
    const boot = () =>
      stage.boot({
        manifest: { emits: [type] },
        providers: [subscriber(type, 'ledger', (event, context) => effect(event, context))],
        outbox: { schema: { onStart: 'migrate' }, retention: { schedule: '* * * * * *' } },
      });
    const { publisher } = await boot();
    await boot();
    for (let n = 0; n < 3; n++) await stage.database.query(old(true));
    await stage.database.query(old(false));
    await publisher.publishNow(type, {});

    await eventually(
      'the old ones are forgotten',
      async () => (await count('events')) === 2 && (await count('handled')) === 1,
    );
    expect(await count('deliveries')).toBe(1);
    expect(await stage.database.query(`SELECT outcome FROM outbox.job_state WHERE job = 'outbox.purge'`)).toHaveLength(
      1,
    );
  });
});
