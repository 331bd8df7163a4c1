import type { Duration } from '../core/duration.js';
import type { Database } from '../tables/database.js';
import type { DeliveryState } from './delivery-info.js';

export interface WaitOptions {
  /** Default 30 s. */
  readonly timeout?: Duration | number;
  readonly signal?: AbortSignal;
}

export interface EndedDelivery {
  readonly durable: string | null;
  readonly state: Extract<DeliveryState, 'completed' | 'discarded' | 'cancelled'>;
  readonly error: string | null;
}

export class Waiter {
  constructor(private readonly database: Database) {}

  async wait(_id: string, _options: WaitOptions = {}): Promise<readonly EndedDelivery[]> {
    throw new Error(`not built ${this.database.schema}`);
  }
}
