import type { DeliveryState } from './delivery-info.js';

/** All of it has to hold. */
export interface DeliveryFilter {
  /** Default: all but completed. */
  readonly state?: DeliveryState | readonly DeliveryState[];
  readonly durable?: string;
  /** A type or a pattern, such as `billing.*.*`; an unknown one matches nothing, what is neither is refused. */
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
