import type { DiscoveryService } from '@nestjs/core';
import type { DataSource } from 'typeorm';
import { works } from './boot/boot-check.js';
import { DeadLetterAlert } from './consume/dead-letter-alert.js';
import { CancelCalls } from './core/cancel-calls.js';
import { Floor } from './core/floor.js';
import { type Log } from './core/throttled-log.js';
import type { Transport } from './core/transport.js';
import { both, type Nudge, WakeSignal } from './core/wake-signal.js';
import { WorkerIdentity } from './core/worker-identity.js';
import type { KnownEvents } from './events/known-events.js';
import type { Registry } from './jobs/listed-jobs.js';
import type { OutboxSettings } from './outbox.options.js';
import { ListenerService } from './relay/listener.service.js';
import { Notifier } from './relay/notifier.js';
import { Database } from './tables/database.js';
import type { InfrastructureConnection } from './tables/infrastructure-connection.js';
import { CommitWatcher } from './transactions/commit-watcher.js';
import { JoinedRepositories } from './transactions/joined-repositories.js';
import { StrayGuard } from './transactions/stray-guard.js';
import { TransactionFollower } from './transactions/transaction-follower.js';

export interface WiringInput {
  readonly settings: OutboxSettings;
  readonly dataSource: DataSource;
  readonly catalog: KnownEvents;
  readonly discovery: DiscoveryService;
  /** Counted at bootstrap, when all modules are there. */
  readonly roots: () => number;
  /** Nest's list of scheduled jobs, asked for when the app is up. */
  readonly scheduled: () => Promise<Registry>;
  readonly log: Log;
}

/** What every part stands on: made first, once per app; nothing is shared between two apps in one process. */
export class Foundation {
  readonly database: Database;
  readonly identity = new WorkerIdentity();
  readonly wakeRelay = new WakeSignal();
  readonly floor = new Floor();
  /** What was just committed is for this process's relay, however long ago it was written. */
  readonly relay: Nudge = {
    nudge: (ageMs = 0) => {
      this.floor.reach(ageMs);
      this.wakeRelay.nudge();
    },
  };
  readonly wakeTaker = new WakeSignal();
  readonly cancels = new CancelCalls();
  readonly wakeJobs = new WakeSignal();
  readonly transport: Transport;
  readonly alert: DeadLetterAlert;
  readonly commits: CommitWatcher;
  readonly follower: TransactionFollower;
  /** Shared by the taker, the sweep, the back-fill and health: short statements that take turns. */
  readonly connection: InfrastructureConnection;
  /** Where several processes work, each hears of the others. */
  readonly listener: ListenerService | undefined;
  readonly notifier: Notifier;
  /** This process's taker, and those of others. */
  readonly wakeTakers: Nudge;

  constructor({ dataSource, settings, log }: WiringInput) {
    this.database = new Database(dataSource, settings.schema, settings.infrastructureUrl);
    const { database, wakeTaker, wakeJobs } = this;
    this.alert = new DeadLetterAlert(settings, log);
    this.transport = settings.transport.create({ log, installation: () => this.installation() });
    // NOTIFY takes a transaction number; nothing is lost when a crash forgets its commit.
    this.connection = works(settings)
      ? database.infrastructure('worker', log)
      : database.infrastructure('publisher', log, ['SET synchronous_commit = off']);
    const many = settings.transport.capabilities.processes === 'many';
    this.listener =
      works(settings) && many
        ? new ListenerService(database, this.relay, wakeTaker, wakeJobs, this.cancels, log)
        : undefined;
    this.notifier = new Notifier(database, this.listener?.connection ?? this.connection, log);
    const alone = works(settings) && !many;
    this.wakeTakers = alone ? wakeTaker : both(wakeTaker, this.notifier.deliveries);
    // Who relays by himself needs nobody else for it.
    this.commits = new CommitWatcher(works(settings) ? this.relay : this.notifier.queue);
    this.follower = new TransactionFollower(dataSource, this.commits);
    this.follower.follow();
    const { repositories, tenancy } = settings;
    if (repositories !== 'off') new StrayGuard(this.follower, tenancy, log).watch(dataSource);
    // Over the guard, which then finds what could not be joined.
    if (repositories === 'join') new JoinedRepositories(this.follower).join(dataSource);
  }

  private async installation(): Promise<string> {
    const [{ rows }] = await this.connection.run(this.database.reconcile.installation());
    const [row] = rows;
    if (!row) throw new Error('the outbox schema has no version');
    return row.installation;
  }
}
