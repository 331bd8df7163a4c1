import type { JetStreamManager } from 'nats';
import type { Progress } from '../../core/transport.js';
import { eventIdOf } from './cloud-event.js';
import { apiCode, consumerNotFound, messageNotFound, streamNotFound } from './nats-errors.js';

/** How far the stream's consumer is: nothing waits, or from which event on. */
export async function progressOf(manager: JetStreamManager, stream: string, consumer: string): Promise<Progress> {
  try {
    const info = await manager.consumers.info(stream, consumer);
    if (info.num_pending === 0 && info.num_ack_pending === 0) return { kind: 'idle' };
    return await firstOpen(manager, stream, info.ack_floor.stream_seq + 1);
  } catch (error) {
    const code = apiCode(error) ?? 0;
    if ([consumerNotFound, streamNotFound, messageNotFound].includes(code)) return { kind: 'unknown' };
    throw error;
  }
}

async function firstOpen(manager: JetStreamManager, stream: string, sequence: number): Promise<Progress> {
  // What expired is gone, and is no one's any more.
  const { state } = await manager.streams.info(stream);
  const message = await manager.streams.getMessage(stream, { seq: Math.max(sequence, state.first_seq) });
  const eventId = eventIdOf(message.header);
  return eventId ? { kind: 'open', eventId } : { kind: 'unknown' };
}
