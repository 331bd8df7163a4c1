import type { OutgoingRow, SendOutcome, SendResult } from '../../core/transport.js';
import { messageHeaders, type Origin } from './cloud-event.js';
import type { JetstreamSettings } from './jetstream.options.js';
import { callMs, type Link } from './link.js';
import { BrokerTrouble, isForbiddenSubject, rowRefusal } from './nats-errors.js';
import { subjectOf } from './subjects.js';

type Sent = { readonly outcome: SendOutcome; readonly trouble?: BrokerTrouble; readonly forbidden?: boolean };

const bytes = new TextEncoder();

/**
 * Publishes a batch pipelined, and tells for each event what became of it. The server knows an id for the length of its
 * duplicate window, so whoever is in doubt sends again: the acknowledgement of a duplicate is success.
 */
export class Sender {
  constructor(
    private readonly link: Link,
    private readonly settings: JetstreamSettings,
    private readonly origin: Origin,
  ) {}

  async send(events: readonly OutgoingRow[]): Promise<SendResult> {
    const sent = forbidden(await Promise.all(events.map((event) => this.one(event))));
    const outcomes = sent.map(({ outcome }) => outcome);
    const trouble = sent.find((each) => each.trouble)?.trouble;
    return trouble ? { outcomes, trouble } : { outcomes };
  }

  private async one(event: OutgoingRow): Promise<Sent> {
    const subject = subjectOf(this.settings.prefix, event.type);
    if (subject === undefined) return refused(`${JSON.stringify(event.type)} is no event type that can be a subject`);
    try {
      await this.link.client.publish(subject, bytes.encode(event.payload), {
        headers: messageHeaders(event, this.origin),
        msgID: event.id,
        expect: { streamName: this.settings.stream },
        timeout: callMs,
      });
      return { outcome: { kind: 'sent' } };
    } catch (error) {
      const reason = error instanceof URIError ? error.message : rowRefusal(error);
      if (reason !== undefined) return refused(reason);
      return {
        outcome: { kind: 'unsent' },
        trouble: error instanceof BrokerTrouble ? error : new BrokerTrouble(error),
        forbidden: isForbiddenSubject(error),
      };
    }
  }
}

/** A type that the account may not publish, among others that it may: for ever the oldest, it would starve the queue. */
function forbidden(sent: readonly Sent[]): readonly Sent[] {
  if (!sent.some(({ outcome }) => outcome.kind === 'sent')) return sent;
  return sent.map((each) => (each.forbidden ? refused(each.trouble?.message ?? 'not permitted') : each));
}

function refused(reason: string): Sent {
  return { outcome: { kind: 'refused', reason } };
}
