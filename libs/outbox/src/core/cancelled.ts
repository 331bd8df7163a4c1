/** What cancelling came to, counted in deliveries: one (event, durable) each. */
export interface Cancelled {
  /** They will not run. An event that nobody is to get counts as one. */
  readonly cancelled: number;
  /** A handler has claimed them, or has ended with them: what it does stands. */
  readonly tooLate: number;
}
