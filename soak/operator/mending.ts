import type { DeliveryFilter } from 'nestjs-outbox';
import type { Desk } from '../desk.js';
import { subscriptions } from '../events.js';
import { pick } from '../random.js';

const filters: readonly DeliveryFilter[] = [
  {},
  { durable: 'mail' },
  { type: 'soak.order.placed' },
  { type: 'soak.*.*', tenantId: 'acme' },
  { error: 'asked to fail' },
  { error: 'nothing says this' },
  { state: ['discarded', 'retryable'] },
  { state: 'retryable', durable: 'mail' },
];

/** Retries, discards and sends again, each now and then twice at the same time. */
export function mending(desk: Desk, lane: number): () => Promise<void> {
  const random = desk.random(lane);
  return async () => {
    const dice = random.next();
    const hands = random.next() < 0.3 ? 2 : 1;
    const filter = pick(filters, random.next()) ?? {};
    const one =
      dice < 0.2
        ? () => many(desk, 'retryMany', filter)
        : dice < 0.25
          ? () => many(desk, 'discard', 'state' in filter ? {} : filter)
          : dice < 0.35
            ? () => retryOne(desk)
            : dice < 0.4
              ? () => runJob(desk)
              : await sending(desk, lane);
    await Promise.all(Array.from({ length: hands }, () => one().catch((error: unknown) => desk.failed('mend', error))));
  };

  async function sending(desk: Desk, _lane: number): Promise<() => Promise<void>> {
    const event = await desk.event(random);
    const durable = pick(
      subscriptions.filter(({ type }) => type === event?.type),
      random.next(),
    )?.durable;
    if (!event || !durable) return async () => {};
    const force = random.next() < 0.8;
    return () => send(desk, event.id, durable, force);
  }
}

async function many(desk: Desk, kind: 'retryMany' | 'discard', filter: DeliveryFilter): Promise<void> {
  const op = desk.op();
  const { done, failed, rows } = await desk.inspector[kind](filter, { reason: op });
  desk.done(kind, op, done);
  if (failed > 0) desk.surprises.push(`${kind}: ${JSON.stringify(rows.find(({ outcome }) => outcome === 'failed'))}`);
}

async function retryOne(desk: Desk): Promise<void> {
  const { deliveries } = await desk.inspector.list({ state: ['discarded', 'retryable'] }, { limit: 1 });
  const [first] = deliveries;
  if (!first?.durable) return;
  const op = desk.op();
  const { outcome } = await desk.inspector.retry(first.eventId, first.durable, { reason: op });
  if (outcome === 'done') desk.done('retry', op);
}

async function runJob(desk: Desk): Promise<void> {
  const op = desk.op();
  try {
    await desk.inspector.runPeriodic('soak.tick', { reason: op });
    desk.done('run-job', op);
  } catch (error) {
    if ((error as Error).name !== 'JobPausedError') throw error;
  }
}

/**
 * By force only what has ended: the state that it ended in is part of the reason, so that the audit tells how many ends a
 * delivery has had, and what they were, whether the answer came or not.
 */
async function send(desk: Desk, id: string, durable: string, force: boolean): Promise<void> {
  const found = (await desk.inspector.get(id))?.deliveries.find((delivery) => delivery.durable === durable);
  const ended = found && ['completed', 'discarded', 'cancelled'].includes(found.state);
  if (force && !ended) return;
  const op = desk.op(force ? `from ${found?.state}` : '');
  const { outcome } = await desk.inspector.send(id, { to: durable, force, reason: op });
  if (outcome === 'done') desk.done('send', op);
}
