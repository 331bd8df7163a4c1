import type { Database } from '../tables/database.js';
import type { DeliveryInfo, DeliveryState, EventInfo } from './delivery-info.js';

/** All of it has to hold. */
export interface DeliveryFilter {
  /** Default: all but completed. */
  readonly state?: DeliveryState | readonly DeliveryState[];
  readonly durable?: string;
  /** A type or a pattern, such as `billing.*.*`. */
  readonly type?: string;
  readonly tenantId?: string;
  readonly subject?: string;
  readonly eventId?: string;
  /** A text that the last error contains, in any case. */
  readonly error?: string;
  /** Published at or after. */
  readonly from?: Date;
  /** Published before. */
  readonly to?: Date;
}

export interface PageOptions {
  /** Default 100, at most 1,000. */
  readonly limit?: number;
  /** `next` of the page before. */
  readonly cursor?: string;
}

export interface DeliveryPage {
  /** Newest event first. */
  readonly deliveries: readonly DeliveryInfo[];
  /** Where the next page begins; null when there is none. */
  readonly next: string | null;
}

export interface AttemptInfo {
  readonly durable: string;
  readonly n: number;
  readonly error: string;
  readonly worker: string | null;
  readonly failedAt: Date;
  readonly nextAt: Date | null;
}

export interface EventDetails {
  readonly event: EventInfo;
  /** Where it is on its way to the deliveries. */
  readonly relay: {
    readonly state: 'scheduled' | 'queued' | 'forwarded' | 'refused';
    readonly dueAt: Date | null;
    readonly tries: number;
    readonly error: string | null;
  };
  readonly deliveries: readonly DeliveryInfo[];
  /** Failed attempts, oldest first; at most 20 of each delivery. */
  readonly attempts: readonly AttemptInfo[];
}

export class DeliveryReader {
  constructor(private readonly database: Database) {}

  async list(_filter: DeliveryFilter = {}, _page: PageOptions = {}): Promise<DeliveryPage> {
    throw new Error(`not built ${this.database.schema}`);
  }

  async get(_id: string): Promise<EventDetails | null> {
    throw new Error(`not built ${this.database.schema}`);
  }
}
