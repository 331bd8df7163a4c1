import type { DataSource } from 'typeorm';
import type { SubscriptionRegistry } from '../consume/subscription.registry.js';
import type { KnownEvents } from '../events/known-events.js';
import type { BootProblem } from '../outbox.errors.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { Database } from '../tables/database.js';

/** What the checks look at. */
export interface BootContext {
  readonly settings: OutboxSettings;
  readonly dataSource: DataSource;
  readonly database: Database;
  readonly catalog: KnownEvents;
  readonly registry: SubscriptionRegistry;
  /** How many times `OutboxModule.forRoot` is part of this app. */
  readonly roots: number;
}

/** One thing looked at before anything starts. Needs no database unless `asksDatabase`. */
export interface BootCheck {
  readonly name: string;
  readonly asksDatabase?: boolean;
  run(context: BootContext): readonly BootProblem[] | Promise<readonly BootProblem[]>;
}

/** Whether this process relays and handles. */
export function works(settings: OutboxSettings): boolean {
  return settings.role !== 'publisher';
}
