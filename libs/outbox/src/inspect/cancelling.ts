import type { Database } from '../tables/database.js';
import type { ActionOptions } from './audit.js';

/** How many deliveries will not run, and for how many it was too late: a handler had claimed them. */
export interface Cancelled {
  readonly cancelled: number;
  readonly tooLate: number;
}

export type CancelQuery =
  | { readonly id: string }
  | { readonly event: string; readonly unique: string; readonly tenantId?: string }
  | { readonly event: string; readonly subject: string; readonly tenantId?: string };

export interface CancelOptions extends ActionOptions {
  /** Also aborts the signal of handlers that run it now. Default false. */
  readonly abort?: boolean;
}

export class Canceller {
  constructor(private readonly database: Database) {}

  async cancel(_query: CancelQuery, _options: CancelOptions = {}): Promise<Cancelled> {
    throw new Error(`not built ${this.database.schema}`);
  }
}
