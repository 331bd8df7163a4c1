import { useStage } from '../support/stage.js';

describe('prepared statements that the application discards on a pooled connection', () => {
  const stage = useStage();

  it('cost one publish on it at most, and not every one from then on', async () => {
    const app = await stage.boot({
      manifest: { emits: ['test.work.asked'] },
      outbox: { role: 'publisher' },
      typeorm: { poolSize: 3 },
    });
    const publish = () => app.dataSource.transaction(() => app.publisher.publish('test.work.asked', {}));
    await publish();
    await app.dataSource.query('DISCARD ALL');
    await publish().catch((error: unknown) => expect(error).toMatchObject({ code: '26000' }));
    await publish();
    await app.publisher.publishNow('test.work.asked', {});
  });
});
