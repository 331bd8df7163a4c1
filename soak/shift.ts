/** An action that was answered, and how many rows it was told to have changed. */
export interface Answered {
  /** It stands in the audit as the reason. */
  readonly op: string;
  readonly kind: string;
  /** Of those by filter, the rows; of the others, 1. */
  readonly rows: number;
}

/** From the answer to a pause until the resumption was asked for, by the database's clock, in milliseconds since 1970. */
export interface PausedTime {
  readonly kind: 'durable' | 'type' | 'tenant' | 'job';
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** What the operator did and saw. */
export interface Shift {
  readonly answered: readonly Answered[];
  readonly paused: readonly PausedTime[];
  /** Deliveries that an operator's cancel called too late, and whose handler it interrupted. */
  readonly aborted: number;
  readonly reads: number;
  readonly waits: number;
  /** Actions that an outage ended: nobody knows what came of them. */
  readonly unanswered: number;
  /** What the library said that it should not have. */
  readonly surprises: readonly string[];
}
