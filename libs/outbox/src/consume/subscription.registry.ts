import type { BootProblem } from '../outbox.errors.js';
import type { Subscription } from './subscription.js';

/** The subscriptions of this app by durable, filled once at bootstrap. */
export class SubscriptionRegistry {
  private readonly byDurable = new Map<string, Subscription>();
  private readonly found: BootProblem[] = [];

  add(subscription: Subscription): void {
    const standing = this.byDurable.get(subscription.durable);
    if (standing) {
      this.problem(
        'durables',
        `durable '${subscription.durable}' is used by ${standing.where} and by ${subscription.where}; a durable belongs to one method, so give one of them another name`,
      );
      return;
    }
    this.byDurable.set(subscription.durable, subscription);
  }

  problem(check: string, message: string): void {
    this.found.push({ check, message });
  }

  /** What was wrong with the subscriptions, for the boot gate. */
  get problems(): readonly BootProblem[] {
    return this.found;
  }

  get all(): readonly Subscription[] {
    return [...this.byDurable.values()];
  }
}
