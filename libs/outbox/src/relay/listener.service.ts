import { BackgroundService } from '../core/background-service.js';
import type { CancelCalls } from '../core/cancel-calls.js';
import type { Log } from '../core/throttled-log.js';
import type { Nudge } from '../core/wake-signal.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';

/** How often the connection is used, so that one that is dead without a word is noticed. */
const everyMs = 10_000;

/**
 * Hears of work from other processes (`queue <age>`, `deliveries <age>`), and of events whose handlers are to end
 * (`cancel <event id>`, which is an operator's to repeat when it is lost). It only shortens waits: while it is away everything is found by the polls, and
 * when it is back all loops look once, for what was told meanwhile.
 *
 *   away ── turn ──▶ listening ── connection lost ──▶ away, at once again, then slower each time
 */
export class ListenerService extends BackgroundService {
  /** NOTIFY goes out on it, too. */
  readonly connection: InfrastructureConnection;
  /** Whether other processes can wake this one. */
  listening = false;

  constructor(
    private readonly database: Database,
    private readonly relay: Nudge,
    private readonly taker: Nudge,
    private readonly jobs: Nudge,
    cancels: CancelCalls,
    log: Log,
  ) {
    super('outbox.listener', log);
    // NOTIFY takes a transaction number; nothing is lost when a crash forgets its commit.
    const settings = [`LISTEN ${database.channel}`, 'SET synchronous_commit = off'];
    this.connection = database.infrastructure('wake', log, settings, {
      connected: () => this.heard(),
      lost: () => this.lost(),
      notified: (payload) => {
        const [news, ageMs] = payload.split(' ');
        if (news === 'cancel') return cancels.call(ageMs ?? '');
        const told = news === 'queue' ? this.relay : news === 'jobs' ? this.jobs : this.taker;
        // What it waited on the way is not in the age: a second more costs next to nothing.
        told.nudge((Number(ageMs) || 0) + 1_000);
      },
    });
  }

  override async stop(): Promise<void> {
    await super.stop();
    await this.connection.close();
  }

  protected async turn(): Promise<number> {
    await this.connection.run(this.database.nothing());
    return everyMs;
  }

  private heard(): void {
    this.listening = true;
    this.relay.nudge();
    this.taker.nudge();
    this.jobs.nudge();
  }

  private lost(): void {
    this.listening = false;
    this.wake.nudge();
  }
}
