import { works } from './boot/boot-check.js';
import { Actions } from './inspect/actions.js';
import { actorOf } from './inspect/audit.js';
import { Canceller } from './inspect/cancelling.js';
import { Explainer } from './inspect/explain.js';
import { OutboxHealth } from './inspect/health.service.js';
import { OutboxInspector } from './inspect/inspector.js';
import { DeliveryReader } from './inspect/listing.js';
import { OverviewReader } from './inspect/overview.js';
import { Pauses } from './inspect/pauses.js';
import { PeriodicReader } from './inspect/periodic.js';
import type { KnownJobs } from './inspect/periodic-rows.js';
import { Waiter } from './inspect/waiting.js';
import type { JobRegistry } from './jobs/job.registry.js';
import type { SchedulerService } from './jobs/scheduler.service.js';
import type { Foundation } from './outbox.foundation.js';
import { appName } from './outbox.lifecycle.js';
import type { OutboxSettings } from './outbox.options.js';
import type { Durables } from './recover/durables.service.js';

/** What looks into an outbox, and acts on it. */
export interface Inspection {
  readonly health: OutboxHealth;
  readonly inspector: OutboxInspector;
  /** Ends with the app. */
  readonly waiter: Waiter;
}

/** The read model and its actions, given what they need of features that they do not know. */
export function inspection(
  settings: OutboxSettings,
  base: Foundation,
  durables: Durables,
  jobs: KnownJobs,
): Inspection {
  const { database, cancels, wakeTakers, transport, listener, identity, connection } = base;
  const problems = () => (works(settings) ? (transport.problems?.() ?? []) : []);
  const explainer = new Explainer(database, settings.retentionMs, problems);
  const waiter = new Waiter(database, explainer);
  const acting = { database, takers: wakeTakers, who: appName() };
  const inspector = new OutboxInspector({
    overview: new OverviewReader(database),
    deliveries: new DeliveryReader(database),
    explainer,
    waiter,
    canceller: new Canceller(database, cancels, appName()),
    actions: new Actions(acting),
    pauses: new Pauses(acting),
    periodic: new PeriodicReader(database, jobs, appName()),
    retire: async (durable, options) => {
      actorOf(options, appName());
      return durables.retire(durable, options);
    },
  });
  const health = new OutboxHealth(
    database,
    connection,
    works(settings) ? identity : undefined,
    settings.pollMs,
    () => listener?.listening ?? null,
    problems,
  );
  return { health, inspector, waiter };
}

/** The jobs of this process, for an inspector that knows nothing of schedules. */
export function knownJobs({ wakeJobs }: Foundation, jobs: JobRegistry, runner: SchedulerService): KnownJobs {
  return {
    find: (name) => {
      const found = jobs.find(name);
      return found && { schedule: found.schedule.text, parallel: found.parallel, next: found.schedule.next };
    },
    register: () => runner.registerNow(),
    nudge: () => wakeJobs.nudge(),
  };
}
