import type { Database } from '../tables/database.js';
import type { ActionOptions } from './audit.js';
import type { DeliveryFilter } from './listing.js';

/** What an action came to for one delivery. `unchanged`: somebody was first, or it is in a state in which there is nothing to do. */
export type ActionOutcome = 'done' | 'unchanged' | 'not-found' | 'failed';

export interface RowOutcome {
  readonly eventId: string;
  readonly durable: string;
  readonly outcome: ActionOutcome;
  /** Why it is not `done`. */
  readonly detail: string | null;
}

export interface ManyOptions extends ActionOptions {
  /** Rows at most. Default: no limit. */
  readonly limit?: number;
  /** Changes nothing: the outcomes say what would be done. */
  readonly dryRun?: boolean;
  /** Called for each row, in chunks as they are committed. */
  readonly onRow?: (row: RowOutcome, counts: ManyCounts) => void;
  /** Ends between two chunks. */
  readonly signal?: AbortSignal;
}

export interface ManyCounts {
  readonly matched: number;
  readonly done: number;
  readonly unchanged: number;
  readonly failed: number;
}

export interface ManyReport extends ManyCounts {
  readonly dryRun: boolean;
  /** The first 10,000; `onRow` sees all. */
  readonly rows: readonly RowOutcome[];
}

export interface SendOptions extends ActionOptions {
  readonly to: string;
  /** Also when the durable has handled, discarded or cancelled it: its handler runs once more. Default false. */
  readonly force?: boolean;
}

export class Actions {
  constructor(private readonly database: Database) {}

  /** A dead letter runs again from attempt 1; one that waits for its next attempt runs now. */
  async retry(_eventId: string, _durable: string, _options: ActionOptions = {}): Promise<RowOutcome> {
    throw new Error(`not built ${this.database.schema}`);
  }

  /** Default of `filter.state`: discarded. */
  async retryMany(_filter: DeliveryFilter, _options: ManyOptions = {}): Promise<ManyReport> {
    throw new Error(`not built ${this.database.schema}`);
  }

  /** Closes dead letters; they keep their verdict. */
  async discard(_filter: DeliveryFilter, _options: ManyOptions = {}): Promise<ManyReport> {
    throw new Error(`not built ${this.database.schema}`);
  }

  /** Delivers an event to one durable, whether it was meant for it or not. */
  async send(_eventId: string, _options: SendOptions): Promise<RowOutcome> {
    throw new Error(`not built ${this.database.schema}`);
  }
}
