import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { jetstream } from 'nestjs-outbox/jetstream';
import { eventually } from '../../support/eventually.js';
import { describeWithNats } from '../../support/nats.js';
import { effect, subscriber, useStage } from '../../support/stage.js';
import { natsUrl } from '../../support/test-database.js';

describeWithNats('a consumer that was made with a shorter `ackWait` than the option now says', () => {
  const stage = useStage();

  it('is told in time that a message is worked on', async () => {
    const name = `ack-wait-${randomUUID().slice(0, 8)}`;
    const boot = (ackWait: '1s' | '30s') =>
      stage.boot({
        manifest: { emits: ['test.work.asked'] },
        providers: [
          subscriber('test.work.asked', 'ledger', async (event, ctx) => {
            // Three times as long as its server waits for a word.
            await pause(3_000);
            await effect(event, ctx);
          }),
        ],
        outbox: {
          schema: { onStart: 'migrate' },
          transport: jetstream({ servers: natsUrl(), stream: name, prefix: name, ackWait }),
        },
      });
    await (await boot('1s')).close();
    const app = await boot('30s');
    const { id } = await app.publisher.publishNow('test.work.asked', {});
    await eventually('it is handled', () =>
      stage.database.value<boolean>('SELECT EXISTS (SELECT 1 FROM effects WHERE event_id = $1)', [id]),
    );
    expect(app.log.matching(/tried again|redelivered/)).toEqual([]);
    expect(await stage.database.query('SELECT * FROM outbox.deliveries')).toEqual([]);
    await app.close();
  });
});
