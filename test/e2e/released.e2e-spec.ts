import { gate } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

describe('a handler that releases its query runner', () => {
  const stage = useStage();

  it('does not hand its open transaction to the next user of the pool', async () => {
    const released = gate();
    const done = gate();
    const app = await stage.boot({
      manifest: { emits: ['test.work.asked'] },
      providers: [
        subscriber(
          'test.work.asked',
          'worker',
          async (event, context) => {
            await effect(event, context);
            if (context.attempt > 1) return;
            await context.manager.queryRunner?.release().catch(() => {});
            released.open();
            await done.passed;
            throw new Error('once');
          },
          { backoff: ['50ms'] },
        ),
      ],
    });
    await app.publisher.publishNow('test.work.asked', {});
    await released.passed;
    // Somebody else's statement, which has committed when it answers.
    for (let n = 0; n < 4; n++) await app.dataSource.query(`INSERT INTO effects (note) VALUES ('somebody else')`);
    done.open();
    await stage.drained();
    expect(await stage.database.value(`SELECT count(*)::int FROM effects WHERE note = 'somebody else'`)).toBe(4);
  });
});
