import { RetentionPolicy, StorageType } from 'nats';
import { OutboxBootError, type OutboxRootOptions } from 'nestjs-outbox';
import { startNats } from 'throwaway-nats';
import { describeWithNats, describeWithOwnNats } from '../../../../../test/support/nats.js';
import { effect, type Run, subscriber, useStage } from '../../../../../test/support/stage.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import { useBroker } from './broker.fixture.js';
import type { JetstreamOptions } from './jetstream.options.js';
import { jetstream } from './jetstream.transport.js';

const type = 'billing.invoice.paid';

function useApps() {
  const stage = useStage();
  const boot = (options: JetstreamOptions, outbox: OutboxRootOptions = {}, durables = ['boot']) =>
    stage.boot({
      manifest: { emits: [type] },
      providers: durables.map((name) => subscriber(type, name, effect as Run<never>)),
      outbox: {
        transport: jetstream({ servers: natsUrl(), ...options }),
        schema: { onStart: 'migrate' },
        relay: { poll: '50ms' },
        ...outbox,
      },
    });
  return {
    stage,
    boot,
    async refused(...args: Parameters<typeof boot>): Promise<OutboxBootError> {
      const error = await boot(...args).then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(OutboxBootError);
      return error as OutboxBootError;
    },
  };
}

describeWithNats('an app whose stream cannot be used', () => {
  const broker = useBroker();
  const { stage, boot, refused } = useApps();

  it.each([
    ['retention', { retention: RetentionPolicy.Workqueue }],
    ['storage', { storage: StorageType.Memory }],
  ])(
    'for its %s does not boot: one report, with the difference and the remedy; nothing is left running',
    async (what, config) => {
      const stream = broker.name();
      await broker.manager.streams.add({ name: stream, subjects: [`${stream}.>`], ...config });
      const { message, problems } = await refused({ stream, prefix: stream });
      expect(message).toMatch(/^nestjs-outbox does not start: 1 problem\.\n {2}- stream 't-/);
      expect(problems).toEqual([{ check: 'stream', message: expect.stringContaining(`has ${what} '`) }]);
      expect(await stage.database.query('SELECT id FROM outbox.workers WHERE seen_at IS NULL')).toEqual([]);
      expect((await broker.config(stream)).description).toBeUndefined();
    },
  );

  it('because another has its subjects does not boot', async () => {
    const [stream, other] = [broker.name(), broker.name()];
    await broker.manager.streams.add({ name: other, subjects: [`${stream}.billing.>`] });
    const { problems } = await refused({ stream, prefix: stream });
    expect(problems).toEqual([
      { check: 'stream', message: expect.stringContaining(`stream '${other}' (${stream}.billing.>)`) },
    ]);
  });

  it('or cannot have what it is asked for does not boot, after a moment in which others may have been first', async () => {
    const stream = broker.name();
    await broker.manager.streams.add({ name: stream, subjects: [`${stream}.>`], max_consumers: 1 });
    const { problems } = await refused({ stream, prefix: stream }, {}, ['one', 'two']);
    const message = expect.stringMatching(/does not take .* as it is asked for: .*maximum consumers limit/);
    expect(problems).toEqual([{ check: 'stream', message }]);
  });

  it('because it wants more replicas than there are servers does not boot, at once', async () => {
    const stream = broker.name();
    const { problems } = await refused({ stream, prefix: stream, replicas: 3 });
    expect(problems).toEqual([{ check: 'stream', message: expect.stringContaining('cannot have 3 replicas') }]);
  });

  it('boots all the same where it only publishes: it needs none', async () => {
    const stream = broker.name();
    await broker.manager.streams.add({ name: stream, subjects: [`${stream}.>`], retention: RetentionPolicy.Workqueue });
    const app = await boot({ stream, prefix: stream }, { role: 'publisher' }, []);
    await app.publisher.publishNow(type, {});
    await app.close();
  });

  it('has every durable that is somebody else’s in its report', async () => {
    const stream = broker.name();
    await broker.manager.streams.add({ name: stream, subjects: [`${stream}.>`] });
    for (const durable_name of ['one', 'two'])
      await broker.manager.consumers.add(stream, { durable_name, description: 'nestjs-outbox another' });
    const { problems } = await refused({ stream, prefix: stream }, {}, ['one', 'two', 'three']);
    expect(problems.map(({ message }) => /durable '(\w+)'/.exec(message)?.[1])).toEqual(['one', 'two']);
  });
});

describeWithOwnNats('an app whose server has no JetStream', () => {
  const { refused } = useApps();

  it('is given half a minute, in which a cluster finds its leader, and then does not boot', async () => {
    const server = await startNats({ jetstream: false });
    try {
      const { problems } = await refused({ servers: server.url });
      expect(problems).toEqual([{ check: 'stream', message: expect.stringContaining('the server has no JetStream') }]);
    } finally {
      await server.stop();
    }
  });
});
