import type { Delivery } from './envelope.js';

/**
 * The port between the relay and what carries first deliveries. Everything after a first delivery (retries, crashes,
 * operators' retries) is carried by the database on every transport, so an adapter needs no timers and no ladder.
 */
export interface Transport {
  readonly name: string;
  readonly capabilities: TransportCapabilities;
  /** Called once, before anything else. Rejects when the transport cannot be used; the boot then fails. */
  start(receiver: DeliveryReceiver): Promise<void>;
  /** Carries one batch: takes it in the form that suits the transport and hands over what is for this process. */
  forward(batch: OutgoingBatch): Promise<ForwardCounts>;
  /** After it resolves nothing more is received. */
  stop(): Promise<void>;
}

/** What an adapter can and cannot do; asked, never guessed from its name. */
export interface TransportCapabilities {
  /** `one`: the gate refuses a second live worker on the same schema. */
  readonly processes: 'one' | 'many';
  /** Whether the first delivery, too, is a row of `deliveries` (so that the reconciler has nothing to look for). */
  readonly firstDelivery: 'row' | 'message';
}

/** The consuming side, as a transport sees it. */
export interface DeliveryReceiver {
  /** How many more deliveries of each durable this process takes now; durables without room are left out. */
  room(): ReadonlyMap<number, number>;
  receive(deliveries: readonly Delivery[]): void;
}

/**
 * One bounded batch of the queue, offered to the transport in the forms a transport may want. A broker's form (rows
 * locked while they are published, per-row outcomes, confirmed rows leave the queue) joins with the first broker.
 */
export interface OutgoingBatch {
  /**
   * Takes due rows out of the queue and writes one deliveries row per registered durable, in one statement. Rows within
   * `room` are leased to this worker and returned; the others wait for whoever has room.
   */
  fanOut(room: ReadonlyMap<number, number>): Promise<FanOut>;
}

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

/** What `forRoot({ transport })` takes: `postgres()`, `memory()`, or an adapter of one's own. */
export interface TransportFactory {
  readonly name: string;
  readonly capabilities: TransportCapabilities;
  create(): Transport;
}
