import type { DataSource } from 'typeorm';
import type { SubscriptionRegistry } from '../consume/subscription.registry.js';
import type { KnownEvents } from '../events/known-events.js';
import type { JobRegistry } from '../jobs/job.registry.js';
import type { BootProblem } from '../outbox.errors.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { Database } from '../tables/database.js';

/** What is known of an app without its database, and even without its instances. */
export interface GraphContext {
  readonly settings: OutboxSettings;
  readonly catalog: KnownEvents;
  readonly registry: SubscriptionRegistry;
  readonly jobs: JobRegistry;
  /** How many times `OutboxModule.forRoot` is part of this app. */
  readonly roots: number;
}

/** What the checks of a booting app look at. */
export interface BootContext extends GraphContext {
  readonly dataSource: DataSource;
  readonly database: Database;
}

/** Says what does not keep the app from starting but should be known; one line each, once the gate is through. */
export type Warn = (message: string) => void;

/**
 * One thing looked at before anything starts. What is a fact of this process or of the database is a problem and
 * refuses; what is a fact of the fleet, or of machines, is a warning.
 */
export interface BootCheck<Context extends GraphContext = BootContext> {
  readonly name: string;
  run(context: Context, warn: Warn): readonly BootProblem[] | Promise<readonly BootProblem[]>;
}

/** Whether this process relays and handles. */
export function works(settings: OutboxSettings): boolean {
  return settings.role !== 'publisher';
}
