import { eventually, gate } from '../../../../test/support/eventually.js';
import { CapturedLog } from '../../../../test/support/test-app.js';
import type { Delivery } from '../core/envelope.js';
import type { IncomingMessage } from '../core/transport.js';
import { WakeSignal } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import { ConsumerService } from './consumer.service.js';
import type { DeliveryHandler } from './delivery-handler.js';
import type { LateRecorder } from './late-recorder.js';
import type { MessageIntake } from './message-intake.js';
import type { Subscription } from './subscription.js';

const durable = 7;
const slots = 2;
/** What a broker may give for so many slots. */
const most = 4 * slots;

/** A worker whose look at messages, and whose handlers, take as long as the test wants. */
function worker() {
  const looked = gate<Delivery[]>();
  let answered: (messages: readonly IncomingMessage[]) => void = () => {};
  const intake = {
    take: (_: unknown, _handles: unknown, told: typeof answered) => {
      answered = told;
      return looked.passed;
    },
  };
  const never = () => ({ outcome: new Promise(() => {}), ended: () => new Promise(() => {}), abandon: () => {} });
  const consumer = new ConsumerService(
    { handle: never } as unknown as DeliveryHandler,
    { giveBack: async () => {} } as unknown as LateRecorder,
    { number: 1, others: 0, onLost: () => {} } as unknown as WorkerIdentity,
    new WakeSignal(),
    intake as unknown as MessageIntake,
    true,
    new CapturedLog(),
  );
  consumer.open(new Map([[durable, { durable: 'ledger', covers: () => true } as unknown as Subscription]]), slots);
  return {
    consumer,
    room: () => consumer.room().get(durable),
    looked: (deliveries: Delivery[]) => looked.open(deliveries),
    answered: (messages: readonly IncomingMessage[]) => answered(messages),
  };
}

const messages = (count: number) =>
  Array.from({ length: count }, (_, n) => ({ durable, eventId: String(n), type: 'a.b.c' }) as IncomingMessage);
const deliveries = (some: readonly IncomingMessage[]): Delivery[] =>
  some.map(({ eventId }) => ({ durable, eventId, lease: 1 }));

describe('the room for a broker’s messages', () => {
  it('is taken by those that are being looked at, and by each of them once when it waits or runs', async () => {
    const { consumer, room, looked } = worker();
    expect(room()).toBe(most);
    const given = messages(5);
    consumer.receiveMessages(given);
    expect(room()).toBe(most - 5);
    looked(deliveries(given));
    await eventually('as many run as there are slots', () => consumer.running === slots);
    expect(room()).toBe(most - 5);
  });

  it('is taken by those that become rows until they are answered for', async () => {
    const { consumer, room, looked, answered } = worker();
    const given = messages(most + 1);
    consumer.receiveMessages(given);
    expect(room()).toBe(0);
    looked(deliveries(given.slice(0, 1)));
    await eventually('one runs', () => consumer.running === 1);
    expect(room()).toBe(0);
    let told = 0;
    consumer.onRoom(() => told++);
    answered(given.slice(1));
    expect(room()).toBe(most - 1);
    expect(told).toBe(1);
  });
});
