import type { Delivery } from '../core/envelope.js';
import type { Subscription } from './subscription.js';

/** One durable in this process: what was fetched and not started, and how many handlers run. */
export class Lane {
  readonly waiting: Delivery[] = [];
  running = 0;
  /** Messages that are being looked at before they wait here, or are recorded: they take room as well. */
  arriving = 0;
  /** What waited here waited for a slot in vain: nothing more is fetched until one is free, or it would wait here again. */
  stuck = false;

  constructor(
    readonly durable: number,
    readonly subscription: Subscription,
  ) {}

  /** Takes out what waits and answers to `which`. */
  withdraw(which: (delivery: Delivery) => boolean): Delivery[] {
    const out = this.waiting.filter(which);
    const rest = this.waiting.filter((delivery) => !which(delivery));
    this.waiting.splice(0, this.waiting.length, ...rest);
    return out;
  }

  /** As many run as this durable may run at once. */
  get full(): boolean {
    return this.running >= (this.subscription.concurrency ?? Number.POSITIVE_INFINITY);
  }

  /** Whether this durable may start one more, given the process has a slot. */
  get canStart(): boolean {
    return this.waiting.length > 0 && !this.full;
  }
}
