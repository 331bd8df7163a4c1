import { randomUUID } from 'node:crypto';
import { DeadLetters } from 'nestjs-outbox';
import { jetstream } from 'nestjs-outbox/jetstream';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import { effect, subscriber, useStage } from '../../support/stage.js';
import type { TestApp } from '../../support/test-app.js';
import { natsUrl } from '../../support/test-database.js';

describeWithNats('an event that the broker refuses', () => {
  const stage = useStage();
  const name = `refused-${randomUUID().slice(0, 8)}`;
  let app: TestApp;
  let id: string;

  beforeAll(async () => {
    app = await stage.boot({
      manifest: { emits: ['test.work.asked'] },
      providers: [subscriber('test.work.asked', 'ledger', effect)],
      outbox: {
        schema: { onStart: 'migrate' },
        maxEventBytes: 4 * 1024 * 1024,
        relay: { reconcile: '1s' },
        transport: jetstream({ servers: natsUrl(), stream: name, prefix: name }),
      },
    });
    // More than a server takes unless it is told otherwise: 1 MiB, headers included.
    ({ id } = await app.publisher.publishNow('test.work.asked', { text: 'x'.repeat(2 * 1024 * 1024) }));
  });

  const handled = (event: string) =>
    eventually('it is handled', () =>
      stage.database.value<boolean>('SELECT EXISTS (SELECT 1 FROM effects WHERE event_id = $1)', [event]),
    );
  const refusals = () =>
    stage.database.value<number | undefined>('SELECT attempts::int FROM outbox.queue WHERE event_id = $1', [id]);

  it('is charged, and waits for its next try; others go on', async () => {
    await eventually('it is charged', async () => ((await refusals()) ?? 0) > 0);
    expect(await stage.database.value('SELECT last_error FROM outbox.queue WHERE event_id = $1', [id])).toMatch(
      /larger than the server's max_payload/,
    );
    await handled((await app.publisher.publishNow('test.work.asked', {})).id);
  });

  it('is a dead letter of the relay after twenty refusals, and nothing delivers it by itself', async () => {
    await stage.database.query('UPDATE outbox.queue SET attempts = 19, due_at = now() WHERE event_id = $1', [id]);
    await eventually('it left the queue', async () => (await refusals()) === undefined);
    expect(await app.app.get(DeadLetters).list({ durable: '#relay' })).toMatchObject([
      { eventId: id, durable: '#relay', attempts: 20, error: expect.stringMatching(/max_payload/) },
    ]);
    // Whoever looks for what a broker lost looks at everything once more.
    await stage.database.query(`UPDATE outbox.durables SET verified_all_at = now() - interval '25 hours'`);
    await eventually('everything was looked at', () =>
      stage.database.value<boolean>(`SELECT verified_all_at > now() - interval '1 hour' FROM outbox.durables`),
    );
    expect(await stage.database.query('SELECT * FROM outbox.deliveries WHERE event_id = $1', [id])).toEqual([]);
    expect(await stage.database.query('SELECT * FROM effects WHERE event_id = $1', [id])).toEqual([]);
  });

  it('goes to the broker again when an operator retries it', async () => {
    await stage.database.query(`UPDATE outbox.events SET payload = '{}' WHERE id = $1`, [id]);
    const letters = app.app.get(DeadLetters);
    expect(await letters.retry(id, '#relay')).toBe(true);
    expect(await letters.retry(id, '#relay')).toBe(false);
    await handled(id);
    expect(await letters.list()).toEqual([]);
  });
});
