import { OutboxHealth } from 'nestjs-outbox';
import { jetstream } from 'nestjs-outbox/jetstream';
import { startNats, type ThrowawayNats } from 'throwaway-nats';
import { eventually } from '../../support/eventually.js';
import { describeWithOwnNats } from '../../support/nats.js';
import { effect, subscriber, useStage } from '../../support/stage.js';
import type { TestApp } from '../../support/test-app.js';

describeWithOwnNats('health of a worker over JetStream', () => {
  const stage = useStage();
  let nats: ThrowawayNats;
  let worker: TestApp;
  let publisher: TestApp;

  beforeAll(async () => {
    nats = await startNats();
    const transport = jetstream({ servers: nats.url });
    const schema = { onStart: 'migrate' } as const;
    const manifest = { emits: ['test.work.asked'] };
    const providers = [subscriber('test.work.asked', 'ledger', effect)];
    worker = await stage.boot({ manifest, providers, outbox: { schema, transport } });
    publisher = await stage.boot({ manifest, outbox: { role: 'publisher', transport } });
  });

  afterAll(async () => {
    await Promise.all([worker?.close(), publisher?.close()]);
    await nats?.stop();
  });

  const report = (app: TestApp) => app.app.get(OutboxHealth).check();
  const broker = async (app: TestApp) => (await report(app)).problems.filter(({ code }) => code === 'broker');

  it('is green while the broker is there', async () => {
    expect(await report(worker)).toMatchObject({ status: 'green', problems: [] });
  });

  it('is red while it is not, and says what becomes of the work; of a publisher it is not: it has nothing to do with it', async () => {
    await nats.kill();
    await eventually('it is red', async () => (await broker(worker)).length > 0);
    expect(await broker(worker)).toEqual([
      {
        status: 'red',
        code: 'broker',
        message: expect.stringMatching(
          /^not connected to nats:\/\/127\.0\.0\.1:\d+ since 20.*; what is published waits/,
        ),
      },
    ]);
    expect(await broker(publisher)).toEqual([]);
    await nats.start();
    await eventually('it is green again', async () => (await report(worker)).status === 'green');
  });
});
