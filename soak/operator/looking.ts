import type { DeliveryFilter } from 'nestjs-outbox';
import type { Desk } from '../desk.js';
import { orderBooked, subscriptions } from '../events.js';
import { pick } from '../random.js';

const filters: readonly DeliveryFilter[] = [
  {},
  { state: 'completed' },
  { state: ['pending', 'running', 'retryable'] },
  { state: 'cancelled', tenantId: 'globex' },
  { type: 'soak.*.*', durable: 'mail' },
  { type: orderBooked, state: 'discarded', error: 'asked' },
];

/** Reads whatever there is to read. */
export function looking(desk: Desk, lane: number): () => Promise<void> {
  const random = desk.random(lane);
  const { inspector } = desk;
  return async () => {
    const event = await desk.event(random);
    const filter = pick(filters, random.next()) ?? {};
    const looks: readonly (() => Promise<unknown>)[] = [
      () => inspector.overview(),
      () => pages(desk, filter),
      () => inspector.periodic(),
      () => inspector.pauses(),
      async () => event && inspector.get(event.id),
      async () => event && inspector.explain({ id: event.id }),
      async () => event?.subject && inspector.explain({ subject: event.subject }),
      async () => event?.key && inspector.explain({ unique: event.key, type: event.type }),
    ];
    await pick(looks, random.next())?.();
    desk.reads += 1;
  };
}

async function pages(desk: Desk, filter: DeliveryFilter): Promise<void> {
  let cursor: string | undefined;
  for (let n = 0; n < 5; n++) {
    const page = await desk.inspector.list(filter, { limit: 50, ...(cursor && { cursor }) });
    if (!page.next) return;
    cursor = page.next;
  }
}

/** Waits for the end of events, several at a time. */
export function waiting(desk: Desk, lane: number): () => Promise<void> {
  const random = desk.random(lane);
  return async () => {
    const events = await Promise.all([1, 2, 3, 4].map(() => desk.event(random)));
    await Promise.all(events.map((event) => event && wait(desk, event.id, event.type)));
  };
}

/** Whoever is told that an event has ended is told of each of its durables, once. */
async function wait(desk: Desk, id: string, type: string): Promise<void> {
  try {
    const ended = await desk.inspector.wait(id, { timeout: '5s' });
    desk.waits += 1;
    const told = ended.map(({ durable }) => durable).sort();
    const meant = subscriptions
      .filter((each) => each.type === type)
      .map(({ durable }) => durable)
      .sort();
    if (JSON.stringify(told) !== JSON.stringify(meant))
      desk.surprises.push(`wait(${id}) told of ${JSON.stringify(ended)}`);
  } catch (error) {
    if ((error as Error).name !== 'WaitTimeoutError') throw error;
  }
}
