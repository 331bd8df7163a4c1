/** What cancelling came to, counted in deliveries: one (event, durable) each. */
export interface Cancelled {
  /** They will not run. An event that nobody is to get counts as one. */
  readonly cancelled: number;
  /** A handler has claimed them, or has ended with them: what it does stands. */
  readonly tooLate: number;
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Whether Postgres takes it for an id; what it does not take breaks the transaction that asks. */
export function isEventId(id: unknown): id is string {
  return typeof id === 'string' && uuid.test(id);
}
