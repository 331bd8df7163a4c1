import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { reaches } from '../support/eventually.js';
import { useStage } from '../support/stage.js';

/** More than a worker takes at once. */
const events = 1_000;

@Injectable()
class Busy {
  @Subscribe('test.work.asked', 'busy', { from: 'beginning' })
  async work(event: OutboxEvent, ctx: DeliveryContext): Promise<void> {
    await ctx.manager.query('INSERT INTO effects (event_id, durable) VALUES ($1, $2)', [event.id, ctx.durable]);
  }

  /** Nobody publishes this: a durable that always has room. */
  @Subscribe('test.rest.asked', 'idle')
  async rest(): Promise<void> {}
}

const manifest = { emits: ['test.work.asked', 'test.rest.asked'] };

describe('a backlog is worked off at once', () => {
  const stage = useStage();

  it('does not wait for polls, although another durable of the process has nothing to do', async () => {
    const publisher = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    await publisher.dataSource.transaction(() =>
      publisher.publisher.publishMany(
        Array.from({ length: events }, (_, n) => ({ event: 'test.work.asked', payload: { n } })),
      ),
    );
    // Polls never come in this test: what is not asked for by a free slot stays.
    await stage.boot({ manifest, providers: [Busy], outbox: { relay: { poll: '1h' } } });
    await reaches('effects', events, () => stage.database.value<number>('SELECT count(*)::int FROM effects'));
  });
});
