import type { Nudge } from '../core/wake-signal.js';
import type { Database } from '../tables/database.js';
import type { ActionOptions } from './audit.js';

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

export interface ActionParts {
  readonly database: Database;
  /** Takers, this process's and others'. */
  readonly takers: Nudge;
  /** Who acts when nobody says so. */
  readonly who: string;
}
