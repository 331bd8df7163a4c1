import type { JsMsg } from 'nats';
import type { BrokerMessage } from '../../core/envelope.js';

/**
 * Acknowledgements of so long go out in one write. One for each took an eighth of a busy process's time; a process that
 * dies meanwhile leaves messages that find their mark.
 */
const togetherMs = 5;

/**
 * Messages that this process holds unanswered. The server's clock runs from the moment it sends a message, not from the
 * handler's start, so its word is kept fresh from receipt to settlement. One that has not begun after a whole `ack_wait`
 * is given up to the database: a stuck slot would keep it from every other worker for as long as it lives.
 *
 * `ack_wait` is the consumer's, which may have been made with another than the options say now.
 */
export class InFlight {
  private readonly held = new Map<HeldMessage, { since: number; ackWaitMs: number }>();
  private timer: NodeJS.Timeout | undefined;
  private readonly acks: JsMsg[] = [];
  private everyMs = Number.POSITIVE_INFINITY;

  constructor(private readonly handBack: (messages: ReadonlySet<BrokerMessage>) => void) {}

  /** What is not answered by now the server gives to others. */
  stop(): void {
    this.everyMs = 0;
    clearInterval(this.timer);
    this.held.clear();
    this.flush();
  }

  get size(): number {
    return this.held.size;
  }

  hold(message: JsMsg, ackWaitMs: number): BrokerMessage {
    const held = new HeldMessage(message, ackWaitMs, (acked) => {
      this.held.delete(held);
      if (acked && this.acks.push(message) === 1) setTimeout(() => this.flush(), togetherMs);
    });
    this.held.set(held, { since: performance.now(), ackWaitMs });
    this.keepUpWith(ackWaitMs);
    return held;
  }

  private flush(): void {
    for (const message of this.acks.splice(0)) quietly(() => message.ack());
  }

  private keepUpWith(ackWaitMs: number): void {
    if (ackWaitMs / 3 >= this.everyMs) return;
    this.everyMs = ackWaitMs / 3;
    clearInterval(this.timer);
    this.timer = setInterval(() => this.refresh(), this.everyMs);
  }

  private refresh(): void {
    const now = performance.now();
    const old = new Set<BrokerMessage>();
    for (const [message, { since, ackWaitMs }] of this.held) {
      message.working();
      if (now - since > ackWaitMs) old.add(message);
    }
    if (old.size > 0) this.handBack(old);
  }
}

class HeldMessage implements BrokerMessage {
  private done = false;

  constructor(
    private readonly message: JsMsg,
    private readonly laterMs: number,
    private readonly settled: (acked: boolean) => void,
  ) {}

  ack(): void {
    if (this.first()) this.settled(true);
  }

  later(): void {
    if (!this.first()) return;
    this.settled(false);
    quietly(() => this.message.nak(this.laterMs));
  }

  working(): void {
    quietly(() => this.message.working());
  }

  private first(): boolean {
    const first = !this.done;
    this.done = true;
    return first;
  }
}

/** Its connection may be closed: the server then gives the message to somebody else, who finds the mark. */
export function quietly(work: () => void): void {
  try {
    work();
  } catch {}
}
