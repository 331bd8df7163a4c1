import type { Delivery } from '../core/envelope.js';
import type { Subscription } from './subscription.js';

/** One durable in this process: what was fetched and not started, and how many handlers run. */
export class Lane {
  readonly waiting: Delivery[] = [];
  running = 0;

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

  /** Whether this durable may start one more, given the process has a slot. */
  get canStart(): boolean {
    return this.waiting.length > 0 && this.running < (this.subscription.concurrency ?? Number.POSITIVE_INFINITY);
  }
}
