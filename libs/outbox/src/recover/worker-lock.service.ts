import type { ConsumerService } from '../consume/consumer.service.js';
import { BackgroundService } from '../core/background-service.js';
import type { Log } from '../core/throttled-log.js';
import type { WakeSignal } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';

/** The worker says every so often, on the connection that holds its lock, that it is there: so a dead socket is noticed. */
const seenEveryMs = 5_000;

/**
 * Proof of life: a session advisory lock for the worker's number, on a connection of its own.
 *
 *   no number ── enrol ──▶ number ── connection lost ──▶ no number
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | the process | its rows, leased to a number whose lock is free | any worker's sweep: due at once, one interruption more |
 * | the connection | the same, but the process lives | this process: a new number, and the old one's rows freed uncharged |
 */
export class WorkerLockService extends BackgroundService {
  private readonly connection: InfrastructureConnection;
  /** Numbers that were lost and whose rows are still to be freed. */
  private readonly before = new Set<number>();

  constructor(
    private readonly database: Database,
    private readonly identity: WorkerIdentity,
    private readonly app: string,
    private readonly exclusive: boolean,
    private readonly consumer: Pick<ConsumerService, 'running' | 'durables' | 'inFlight' | 'leased'>,
    private readonly taker: WakeSignal,
    log: Log,
  ) {
    super('outbox.worker', log);
    this.connection = database.infrastructure('worker lock', log, [], { lost: () => this.lost() });
  }

  /** Takes a number; called at boot, and by the loop whenever the number was lost. */
  async enrol(): Promise<number> {
    // One message: no sweep finds the old numbers' rows between the two and charges them. This process lives, so no
    // event is suspect.
    const [{ rows }] = await this.connection.run(
      this.database.workers.enrol(this.app, this.exclusive ? 't' : 'f'),
      this.database.deliveries.leave([...this.before]),
    );
    const [row] = rows;
    if (!row) throw new Error('the enrolment returned no number');
    this.before.clear();
    this.identity.number = row.id;
    this.identity.others = row.others;
    // Without a number nothing could be fetched; what waited meanwhile shall not wait for the poll as well.
    this.taker.nudge();
    return row.id;
  }

  /** Frees what is still leased to this worker and lets its lock go. */
  async resign(): Promise<void> {
    await this.stop();
    const number = this.identity.number;
    this.identity.number = undefined;
    try {
      if (number !== undefined) await this.connection.run(this.database.workers.resign(number));
    } catch {
      // The database is gone: the lock goes with the connection, and a sweep frees the rows.
    }
    await this.connection.close();
  }

  protected async turn(): Promise<number> {
    const { number } = this.identity;
    if (number === undefined) await this.enrol();
    else {
      const { running, durables, inFlight, leased } = this.consumer;
      const said = JSON.stringify({ running, deliveries: inFlight, leased });
      await this.connection.run(this.database.workers.seen(number, said, [...durables]));
    }
    return seenEveryMs;
  }

  private lost(): void {
    if (this.identity.number !== undefined) this.before.add(this.identity.number);
    this.identity.lost();
    this.wake.nudge();
  }
}
