import { setTimeout as pause } from 'node:timers/promises';
import type { ConsumerMessages, Subscription } from 'nats';

/** For the server's word that nothing more comes. */
const answerMs = 1_000;

/**
 * Ends a request for messages, and keeps what the server has sent by then. The client's own `stop` drops what is on its
 * way, and each such message would be given to somebody else after `ack_wait`, as if this process had died over it. Its
 * subscription can be drained, and the request ends with it; the package leaves the subscription out of its types.
 */
export async function endRequest(messages: ConsumerMessages | undefined): Promise<void> {
  if (!messages) return;
  const { sub } = messages as ConsumerMessages & { readonly sub?: Subscription };
  const drained = sub?.isClosed() === false ? sub.drain().catch(() => {}) : undefined;
  if (drained) await Promise.race([drained, pause(answerMs, undefined, { ref: false })]);
  messages.stop();
}
