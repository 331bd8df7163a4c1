import type { ConsumerInfo } from 'nats';

/** A consumer that gives nothing for good, though it is there and answers; see `StallWatch`. */
export type Stall = 'ahead' | 'stalled';

/** How long this process must have had a request open in vain. */
const patienceMs = 6_000;

/**
 * Finds consumers that give nothing for good. To a client they look like idle ones.
 *
 * - `ahead`: it was given more than the stream ever held. A server that lost messages and kept the consumers' state (a
 *   power cut, a backup put back) does not go back on 2.9 and 2.10: what is published next is never given, and not even
 *   counted as waiting, until the stream's numbers have passed those that the consumer knows.
 * - `stalled`: messages wait, a request of ours waits for them, and between two looks nothing was given to anybody. By
 *   design that does not happen; by experience servers have got there after purges and changes of filters.
 */
export class StallWatch {
  private readonly seen = new Map<string, { readonly created: string; readonly given: number }>();

  /** `info` was read before `lastSeq` was, so that a message in between cannot put it ahead. `openMs`: for how long a request of ours has waited without a message. */
  judge(info: ConsumerInfo, lastSeq: number, openMs: number): Stall | undefined {
    if (info.delivered.stream_seq > lastSeq) return 'ahead';
    const before = this.seen.get(info.name);
    const given = info.delivered.consumer_seq;
    if (!waitsInVain(info, openMs)) {
      this.seen.delete(info.name);
      return undefined;
    }
    this.seen.set(info.name, { created: info.created, given });
    return before?.created === info.created && before.given === given ? 'stalled' : undefined;
  }
}

/** A consumer that somebody paused, or that may have no more unanswered messages, is meant to give nothing. */
function waitsInVain(info: ConsumerInfo, openMs: number): boolean {
  if (info.paused || info.num_ack_pending >= (info.config.max_ack_pending ?? 0)) return false;
  return info.num_pending > 0 && info.num_waiting > 0 && openMs >= patienceMs;
}
