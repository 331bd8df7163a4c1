import type { Database } from '../tables/database.js';
import type { DeliveryState } from './delivery-info.js';
import type { Pause } from './pauses.js';

export interface OverviewQuery {
  /** Only events of this type or pattern. */
  readonly type?: string;
}

/** What waits at most is counted up to 10,001: beyond that nobody asks how much. */
export interface DurableOverview {
  readonly durable: string;
  readonly retired: boolean;
  readonly paused: Pause | null;
  /** Each up to 10,001. Completed and cancelled ones are those of the last minute, out of the newest 10,000. */
  readonly counts: Readonly<Record<DeliveryState, number>>;
  /** Completed a second, over the last minute. */
  readonly perSecond: number;
  /** When the oldest of each kind became due, or dead; null when there is none. */
  readonly oldest: { readonly pending: Date | null; readonly retryable: Date | null; readonly discarded: Date | null };
  /** When a worker that handles it was last seen, to about a minute. */
  readonly seenAt: Date | null;
}

export interface Overview {
  readonly at: Date;
  readonly queue: { readonly waiting: number; readonly oldest: Date | null };
  readonly scheduled: { readonly waiting: number; readonly next: Date | null };
  readonly durables: readonly DurableOverview[];
  readonly workers: readonly {
    readonly number: number;
    readonly app: string;
    readonly running: number;
    readonly seenAt: Date;
  }[];
  readonly pauses: readonly Pause[];
}

export class OverviewReader {
  constructor(private readonly database: Database) {}

  async look(_query: OverviewQuery = {}): Promise<Overview> {
    throw new Error(`not built ${this.database.schema}`);
  }
}
