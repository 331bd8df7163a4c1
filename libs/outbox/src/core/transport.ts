import type { BrokerMessage, Delivery, OutboxEvent } from './envelope.js';
import type { Log } from './throttled-log.js';

/**
 * The port between the relay and what carries first deliveries. Everything after a first delivery (retries, crashes,
 * operators' retries) is carried by the database on every transport, so an adapter needs no timers and no ladder.
 */
export interface Transport {
  readonly name: string;
  readonly capabilities: TransportCapabilities;
  /**
   * Called once, before anything else. Rejects when the transport cannot be used; the boot then fails. `reread` tells
   * the durables as they are later: one that was retired may have been revived.
   */
  start(
    receiver: DeliveryReceiver,
    durables: readonly ServedDurable[],
    reread: () => Promise<readonly ServedDurable[]>,
  ): Promise<void>;
  /** Carries one batch: takes it in the form that suits the transport and hands over what is for this process. */
  forward(batch: OutgoingBatch): Promise<ForwardCounts>;
  /** After it resolves nothing more is received; what was received may still be acknowledged. */
  stop(): Promise<void>;
  /** After the last handler: acknowledgements are sent, connections end. */
  close(): Promise<void>;
  /** Only of a transport whose first delivery is a message: how far the broker is with a durable. */
  progress?(durable: string): Promise<Progress>;
  /** Only of a transport whose first delivery is a message: the durable is retired, and nothing is kept for it. */
  forget?(durable: string): Promise<void>;
  /** What people should know of it now, for health; nothing when all is well. */
  problems?(): readonly TransportProblem[];
}

/** What an adapter can and cannot do; asked, never guessed from its name. */
export interface TransportCapabilities {
  /** `one`: the gate refuses a second live worker on the same schema. */
  readonly processes: 'one' | 'many';
  /** Whether the first delivery, too, is a row of `deliveries` (so that the reconciler has nothing to look for). */
  readonly firstDelivery: 'row' | 'message';
}

/** A durable that this process handles, as the database has it: the union of what all living versions of the app registered. */
export interface ServedDurable {
  readonly id: number;
  readonly name: string;
  /** Events of other databases may be meant: of those there is nothing but the broker's messages to begin again from. */
  readonly foreign?: boolean;
  /** Types and patterns; `since`: events published before are not meant (null: from the beginning). */
  readonly types: readonly { readonly pattern: string; readonly since: Date | null }[];
}

/** The consuming side, as a transport sees it. */
export interface DeliveryReceiver {
  /** How many more deliveries of each durable this process takes now; durables without room are left out. */
  room(): ReadonlyMap<number, number>;
  /** `listener` is called when there may be room again. */
  onRoom(listener: () => void): void;
  receive(deliveries: readonly Delivery[]): void;
  receiveMessages(messages: readonly IncomingMessage[]): void;
  /** Of these messages, those that have not begun go into the database, for whoever has a slot, and are acknowledged. */
  handBack(messages: ReadonlySet<BrokerMessage>): void;
}

/** A broker's message: a pointer to an event, and a copy for those who have no row of it. */
export interface IncomingMessage {
  readonly eventId: string;
  readonly durable: number;
  readonly message: BrokerMessage;
  /** The broker has given it to somebody before, and heard nothing. */
  readonly redelivered: boolean;
  /** `module.entity.verb`, by its subject. */
  readonly type: string;
  /** Published from another database, by what the message says: there is no row of it but the copy. */
  readonly foreign: boolean;
  /** The event as the message tells it. Throws when it does not. */
  copy(): OutboxEvent;
}

/** How far a broker is with what it has for a durable. */
export type Progress =
  /** Nothing waits and nothing is under way: what has no verdict yet, the broker does not have. */
  | { readonly kind: 'idle' }
  /** This event is the first that is not settled; what lies before it is. */
  | { readonly kind: 'open'; readonly eventId: string }
  | { readonly kind: 'unknown' };

export interface TransportProblem {
  readonly status: 'degraded' | 'down';
  readonly message: string;
}

/** One bounded batch of the queue, offered to the transport in the two forms that a transport may want. */
export interface OutgoingBatch {
  /**
   * Takes due rows out of the queue and writes one deliveries row per registered durable, in one statement. Rows within
   * `room` are leased to this worker and returned; the others wait for whoever has room.
   */
  fanOut(room: ReadonlyMap<number, number>): Promise<FanOut>;
  /**
   * Locks due rows, lets `send` carry them elsewhere, and takes those out of the queue that arrived: the other order
   * would lose events. Throws `sent.trouble` after that, so that the loop backs off.
   */
  publish(send: (events: readonly OutgoingRow[]) => Promise<SendResult>): Promise<ForwardCounts>;
}

/** An event as the relay gives it to a broker. */
export interface OutgoingRow {
  readonly id: string;
  readonly type: string;
  readonly tenantId: string | null;
  readonly subject: string | null;
  /** JSON. */
  readonly payload: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly occurredAt: Date;
}

export interface SendResult {
  /** One for each event, in their order. */
  readonly outcomes: readonly SendOutcome[];
  /** What is wrong with the broker or the way to it; it is no event's fault, and charges none. */
  readonly trouble?: Error;
}

export type SendOutcome =
  | { readonly kind: 'sent' }
  /** It is this event's fault (too large, a name that cannot be sent): charged, and slower each time. */
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'unsent' };

export interface FanOut extends ForwardCounts {
  readonly handedOver: readonly Delivery[];
}

export interface ForwardCounts {
  /** Rows that left the queue. */
  readonly taken: number;
  /** Deliveries that this process may now start or fetch: the taker is nudged when there are any. */
  readonly leftForTakers: number;
  /** Deliveries that wait for other processes: they are told when there are any. */
  readonly leftForOthers: number;
}

/** What `forRoot({ transport })` takes: `postgres()`, `memory()`, `jetstream(…)`, or an adapter of one's own. */
export interface TransportFactory {
  readonly name: string;
  readonly capabilities: TransportCapabilities;
  /** What is wrong with the options it was made with; the boot gate tells. */
  readonly problems?: readonly string[];
  create(parts: TransportParts): Transport;
}

export interface TransportParts {
  readonly log: Log;
  /** Which outbox this is: two of them never share what a broker keeps. */
  installation(): Promise<string>;
}
