import type { Cancelled } from '../core/cancelled.js';
import type { ManyOptions, ManyReport, RowOutcome, SendOptions } from './acting.js';
import type { Actions } from './actions.js';
import type { ActionOptions } from './audit.js';
import type { Canceller, CancelOptions, CancelQuery } from './cancelling.js';
import type { Explainer, ExplainQuery, Explanation } from './explain.js';
import type { DeliveryFilter, DeliveryPage, DeliveryReader, EventDetails, PageOptions } from './listing.js';
import type { Overview, OverviewQuery, OverviewReader } from './overview.js';
import type { Pause, PauseOptions, Pauses, PauseTarget } from './pauses.js';
import type { PeriodicReader } from './periodic.js';
import type { PeriodicInfo } from './periodic-info.js';
import type { EndedDelivery, Waiter, WaitOptions } from './waiting.js';

export interface InspectorParts {
  readonly overview: OverviewReader;
  readonly deliveries: DeliveryReader;
  readonly explainer: Explainer;
  readonly waiter: Waiter;
  readonly canceller: Canceller;
  readonly actions: Actions;
  readonly pauses: Pauses;
  readonly periodic: PeriodicReader;
  /** Ends a durable that has no code any more; see `Durables`. */
  readonly retire: (durable: string, options: ActionOptions) => Promise<{ readonly dropped: number }>;
}

/**
 * Why did that not run? The same answers on every transport, because the database is the truth on every transport.
 * Reading takes no lock and hides no work; every action is written to `outbox.audit`, in the statement that does it.
 */
export class OutboxInspector {
  constructor(private readonly parts: InspectorParts) {}

  /** Per durable and state: how much, how fast, and the oldest of what waits. Counts end at 10,001. */
  overview(query?: OverviewQuery): Promise<Overview> {
    return this.parts.overview.look(query);
  }

  /** Deliveries, newest event first, a page at a time. */
  list(filter?: DeliveryFilter, page?: PageOptions): Promise<DeliveryPage> {
    return this.parts.deliveries.list(filter, page);
  }

  /** An event with its deliveries and failed attempts; null when there is none of that id (any more). */
  get(id: string): Promise<EventDetails | null> {
    return this.parts.deliveries.get(id);
  }

  /** Why an event was not handled, in words, durable by durable, with the next command to type. */
  explain(query: ExplainQuery): Promise<Explanation> {
    return this.parts.explainer.explain(query);
  }

  /**
   * Resolves when every delivery of the event has ended, with each outcome; at once when that is so already. Throws
   * `WaitTimeoutError`, which names what is still open. An id that is not there is waited for while its transaction may
   * be open, which is until it is a minute old; then it is an `EventNotFoundError`.
   */
  wait(id: string, options?: WaitOptions): Promise<readonly EndedDelivery[]> {
    return this.parts.waiter.wait(id, options);
  }

  /** As `EventPublisher.cancel`, in a transaction of its own. */
  cancel(query: CancelQuery, options?: CancelOptions): Promise<Cancelled> {
    return this.parts.canceller.cancel(query, options);
  }

  /** A dead letter runs again, by this durable alone and from attempt 1; what waits for its next attempt runs now. */
  retry(eventId: string, durable: string, options?: ActionOptions): Promise<RowOutcome> {
    return this.parts.actions.retry(eventId, durable, options);
  }

  /** The same for all that match, in bounded chunks; by default the dead letters among them. */
  retryMany(filter: DeliveryFilter, options?: ManyOptions): Promise<ManyReport> {
    return this.parts.actions.retryMany(filter, options);
  }

  /** Closes the dead letters that match, without handling them. */
  discard(filter: DeliveryFilter, options?: ManyOptions): Promise<ManyReport> {
    return this.parts.actions.discard(filter, options);
  }

  /** Delivers an event to one durable, also to one that registered later; with `force`, once more. */
  send(eventId: string, options: SendOptions): Promise<RowOutcome> {
    return this.parts.actions.send(eventId, options);
  }

  /** Handles nothing of it until it is resumed, on any process; loses nothing and forgets nothing. What runs already runs on. */
  pause(target: PauseTarget, options?: PauseOptions): Promise<Pause> {
    return this.parts.pauses.pause(target, options);
  }

  /** Resolves to false when it was not paused. */
  resume(target: PauseTarget, options?: ActionOptions): Promise<boolean> {
    return this.parts.pauses.resume(target, options);
  }

  /** What is paused at this moment: since when, until when, by whom and why. */
  pauses(): Promise<readonly Pause[]> {
    return this.parts.pauses.list();
  }

  /** Ends a durable that no worker handles any more, and drops what waits for it; see `Durables.retire`. */
  retire(durable: string, options: ActionOptions = {}): Promise<{ readonly dropped: number }> {
    return this.parts.retire(durable, options);
  }

  /** The periodic jobs of all processes: schedule, next ticks, last runs, who holds the lock. */
  periodic(): Promise<readonly PeriodicInfo[]> {
    return this.parts.periodic.list();
  }

  /** One more run of a job now, under the same lock. Resolves to its slot. */
  runPeriodic(job: string, options?: ActionOptions): Promise<Date> {
    return this.parts.periodic.run(job, options);
  }
}
