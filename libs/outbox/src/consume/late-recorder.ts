import { setTimeout as pause } from 'node:timers/promises';
import { loopBackoff } from '../core/backoff.js';
import { databaseTrouble } from '../core/database-errors.js';
import type { Delivery } from '../core/envelope.js';
import { type Log, ThrottledLog } from '../core/throttled-log.js';
import type { Nudge } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { type Bound, interval } from '../tables/wire/statement.js';

/**
 * Records what came of a delivery when its own connection cannot: on a connection that is opened for it when it is first
 * needed, again and again until it is done. Not on the taker's: a record may wait for the lock of a backend that dies
 * slowly, and nothing else shall wait with it. It may stop trying when the process has lost the number under which the row is leased: the
 * row is then freed by whoever takes the old number's leases back (this worker or a sweep), with nothing charged.
 */
export class LateRecorder {
  private readonly throttled: ThrottledLog;
  private readonly connection: InfrastructureConnection;
  private closed = false;

  constructor(
    private readonly database: Database,
    private readonly identity: WorkerIdentity,
    private readonly taker: Nudge,
    log: Log,
  ) {
    this.throttled = new ThrottledLog(log);
    this.connection = database.infrastructure('records', log, ['SET lock_timeout = 1000']);
  }

  async close(): Promise<void> {
    this.closed = true;
    await this.connection.close();
  }

  /** The number of rows changed; 0 also when the row is not this worker's any more. */
  async record(delivery: Delivery, statement: Bound): Promise<number> {
    for (let tries = 1; !this.closed && this.identity.number === delivery.lease; tries++) {
      try {
        return await this.write(statement);
      } catch (error) {
        this.throttled.warn(
          'record',
          `outbox: what came of event ${delivery.eventId} cannot be recorded yet: ${(error as Error).message}`,
        );
        await pause(loopBackoff(tries, 50, 2_000));
      }
    }
    return 0;
  }

  /** Fetched and not started: free for everybody, nothing charged. */
  async giveBack(deliveries: readonly Delivery[]): Promise<void> {
    const [first] = deliveries;
    if (!first) return;
    // All carry one number: what was fetched under a lost one was dropped when it was lost.
    const ids = deliveries.map((delivery) => delivery.eventId);
    await this.record(
      first,
      this.database.deliveries.giveBack(
        first.lease,
        ids,
        deliveries.map((delivery) => delivery.durable),
      ),
    );
  }

  /**
   * The handler's connection ended under it. That this statement gets through at once is the probe: the database lives,
   * so the handler (or its SQL, or a limit on idle transactions) is suspect and one interruption is counted. When it
   * does not get through it is an outage, and nothing is charged.
   */
  async interrupted(delivery: Delivery): Promise<void> {
    const interrupt = this.database.deliveries.interrupt(delivery.eventId, delivery.durable, delivery.lease);
    try {
      await this.write(interrupt);
    } catch (error) {
      // Busy is an answer: the database lives, and the handler's backend has not yet rolled back.
      if (databaseTrouble(error) === 'busy') await this.record(delivery, interrupt);
      else await this.giveBack([delivery]);
    }
  }

  /** Nothing began, nothing is charged; tried again after `delayMs`. */
  async postpone(delivery: Delivery, delayMs: number): Promise<void> {
    await this.record(
      delivery,
      this.database.deliveries.postpone(delivery.eventId, delivery.durable, delivery.lease, interval(delayMs)),
    );
  }

  /** The taker sleeps until what it knew to be next: a delivery that comes back is news to it. */
  private async write(statement: Bound): Promise<number> {
    const [{ rowCount }] = await this.connection.run(statement);
    if (rowCount > 0) this.taker.nudge();
    return rowCount;
  }

  /**
   * Ends the handler's backend. Destroying the socket alone would let its statement run to the end, with its locks.
   * Needs the same role or membership in pg_signal_backend; without it the locks stay until the statement ends.
   */
  async terminate(pid: number): Promise<void> {
    try {
      await this.connection.run(this.database.terminate(pid));
    } catch (error) {
      this.throttled.warn(
        'terminate',
        `outbox: the connection of a handler that took too long could not be ended: ${(error as Error).message}`,
      );
    }
  }
}
