import { describeWithNats } from '../../../../../test/support/nats.js';
import type { BrokerMessage } from '../../core/envelope.js';
import { durableOf, partsOf, useBroker } from './broker.fixture.js';
import { ensureConsumer } from './consumer.js';
import { InFlight } from './in-flight.js';
import { ensureStream } from './stream.js';

describeWithNats('messages in flight', () => {
  const broker = useBroker();

  it('that were acknowledged are so when it stops, though acknowledgements go out together', async () => {
    const stream = broker.name();
    const parts = partsOf(broker, { stream, prefix: stream });
    await ensureStream(parts.manager, parts.settings, parts.log, true);
    await ensureConsumer(parts, { durable: durableOf('ledger', ['*.*.*']), name: 'ledger' });
    for (const body of ['a', 'b', 'c', 'open']) await broker.client.publish(`${stream}.billing.invoice.paid`, body);
    const inFlight = new InFlight(() => {});
    const held: BrokerMessage[] = [];
    const consumer = await broker.client.consumers.get(stream, 'ledger');
    for await (const message of await consumer.fetch({ max_messages: 4, expires: 5_000 }))
      held.push(inFlight.hold(message, 30_000));
    for (const message of held.slice(0, 3)) message.ack();
    inFlight.stop();
    await broker.connection.flush();
    const { ack_floor, num_ack_pending } = await broker.manager.consumers.info(stream, 'ledger');
    expect({ settled: ack_floor.consumer_seq, open: num_ack_pending }).toEqual({ settled: 3, open: 1 });
  });
});
