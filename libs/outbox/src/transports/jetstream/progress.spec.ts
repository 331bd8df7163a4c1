import { randomUUID } from 'node:crypto';
import { AckPolicy, connect, headers, type JetStreamManager, type NatsConnection } from 'nats';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import { progressOf } from './progress.js';

describeWithNats("how far a stream's consumer is", () => {
  let connection: NatsConnection;
  let manager: JetStreamManager;
  let stream: string;

  beforeAll(async () => {
    connection = await connect({ servers: natsUrl() });
    manager = await connection.jetstreamManager();
  });

  afterAll(() => connection?.close());

  beforeEach(async () => {
    stream = `progress-${randomUUID()}`;
    await manager.streams.add({ name: stream, subjects: [`${stream}.>`, `foreign.${stream}`] });
    const filter = `${stream}.*.*.*`;
    await manager.consumers.add(stream, {
      durable_name: 'ledger',
      ack_policy: AckPolicy.Explicit,
      filter_subject: filter,
    });
  });

  afterEach(async () => {
    await manager.streams.delete(stream);
  });

  const idOf = (n: number) => `0198c1f0-0000-7000-8000-${String(n).padStart(12, '0')}`;
  const publish = async (n: number, subject = `${stream}.test.work.asked`) => {
    const all = headers();
    if (subject.startsWith(stream)) all.set('ce-id', idOf(n));
    return (await connection.jetstream().publish(subject, '{}', { headers: all })).seq;
  };
  const take = async (count: number) => {
    const consumer = await connection.jetstream().consumers.get(stream, 'ledger');
    const taken = [];
    for await (const message of await consumer.fetch({ max_messages: count, expires: 1_000 })) taken.push(message);
    return taken;
  };
  const progress = () => progressOf(manager, stream, stream, 'ledger');

  it('idle with nothing, and when all is acknowledged', async () => {
    expect(await progress()).toEqual({ kind: 'idle' });
    await publish(1);
    for (const message of await take(1)) await message.ackAck();
    expect(await progress()).toEqual({ kind: 'idle' });
  });

  it('open from the first that is unanswered, or that was never given', async () => {
    for (let n = 1; n <= 4; n++) await publish(n);
    const [first, second] = await take(2);
    expect(await progress()).toEqual({ kind: 'open', eventId: idOf(1) });
    await first?.ackAck();
    expect(await progress()).toEqual({ kind: 'open', eventId: idOf(2) });
    await second?.ackAck();
    expect(await progress()).toEqual({ kind: 'open', eventId: idOf(3) });
  });

  it('goes on to the next where the first is gone, or is no event', async () => {
    await publish(0, `foreign.${stream}`);
    for (let n = 1; n <= 4; n++) await publish(n);
    expect(await progress()).toEqual({ kind: 'open', eventId: idOf(1) });
    await take(2);
    await manager.streams.deleteMessage(stream, 2);
    await manager.streams.deleteMessage(stream, 3);
    expect(await progress()).toEqual({ kind: 'open', eventId: idOf(3) });
  });

  it('goes on to the next where those before it were purged with some unanswered', async () => {
    for (let n = 1; n <= 6; n++) await publish(n);
    await take(3);
    await manager.streams.purge(stream, { seq: 5 });
    expect(await progress()).toEqual({ kind: 'open', eventId: idOf(5) });
  });

  it('unknown without a stream or a consumer', async () => {
    expect(await progressOf(manager, stream, stream, 'nobody')).toEqual({ kind: 'unknown' });
    expect(await progressOf(manager, `${stream}-none`, stream, 'ledger')).toEqual({ kind: 'unknown' });
  });
});
