/**
 * Words (design, section 3): an *event* is one row of `events`; a *durable* is the lasting name of a subscription; a
 * *delivery* is one (event, durable); an *attempt* is the number of one execution of a handler, from 1.
 */
export interface OutboxEvent<P = unknown> {
  /** UUID v7, minted by the database from the time at which the event is due. */
  readonly id: string;
  /** `module.entity.verb` */
  readonly type: string;
  readonly payload: P;
  readonly tenantId: string | null;
  readonly subject: string | null;
  readonly headers: Readonly<Record<string, string>>;
  /** When the publisher's statement ran, by the database's clock. */
  readonly occurredAt: Date;
}

/** A delivery on its way to a handler: a pointer. The row is the truth, so nothing else of the event travels with it. */
export interface Delivery {
  readonly eventId: string;
  /** The durable's number in the database. */
  readonly durable: number;
  /** The worker's number under which the row was leased. */
  readonly lease: number;
  /** A broker's message in place of a row of `deliveries`: until it is acknowledged, the broker keeps it for somebody. */
  readonly message?: BrokerMessage;
}

/** A message that a broker waits to hear of. */
export interface BrokerMessage {
  /** Not for this process, and nothing is recorded of it: the broker gives it to somebody after a while. */
  later(): void;
  /** Handled, or recorded in the database: the broker forgets it. Any number of times; a lost one costs a look at the mark. */
  ack(): void;
}
