import type { ConsumerInfo, JetStreamManager } from 'nats';
import type { Progress } from '../../core/transport.js';
import { eventIdOf } from './cloud-event.js';
import { apiCode, consumerNotFound, messageNotFound, streamNotFound } from './nats-errors.js';

/** How far the consumer is with what the stream holds under `prefix`: nothing waits, or from which event on. */
export async function progressOf(
  manager: JetStreamManager,
  stream: string,
  prefix: string,
  consumer: string,
): Promise<Progress> {
  try {
    const info = await manager.consumers.info(stream, consumer);
    if (info.num_pending === 0 && info.num_ack_pending === 0) return { kind: 'idle' };
    return await firstOpen(manager, stream, prefix, settledTo(info) + 1);
  } catch (error) {
    if ([consumerNotFound, streamNotFound].includes(apiCode(error) ?? 0)) return { kind: 'unknown' };
    throw error;
  }
}

/** With nothing unanswered it is settled as far as it was given; the floor of 2.9 stays behind after a partial purge. */
function settledTo({ num_ack_pending: unanswered, ack_floor: floor, delivered }: ConsumerInfo): number {
  return unanswered === 0 ? delivered.stream_seq : floor.stream_seq;
}

/** The next there is: what stood at the floor may have expired, or been deleted or lost, and is no one's any more. */
async function firstOpen(
  manager: JetStreamManager,
  stream: string,
  prefix: string,
  sequence: number,
): Promise<Progress> {
  const query = { seq: sequence, next_by_subj: `${prefix}.>` };
  try {
    const { header } = await manager.streams.getMessage(stream, query);
    const eventId = eventIdOf(header);
    return eventId ? { kind: 'open', eventId } : { kind: 'unknown' };
  } catch (error) {
    // Counted as waiting or unanswered, and not there: lost with the stream's messages while the consumer's state was kept.
    if (apiCode(error) === messageNotFound) return { kind: 'idle' };
    throw error;
  }
}
