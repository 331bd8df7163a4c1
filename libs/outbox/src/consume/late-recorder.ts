import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises';
import { loopBackoff } from '../core/backoff.js';
import { databaseTrouble, errorCode } from '../core/database-errors.js';
import type { Delivery } from '../core/envelope.js';
import { type Log, ThrottledLog } from '../core/throttled-log.js';
import type { Nudge } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { type Bound, interval } from '../tables/wire/statement.js';
import { adoption } from './adoption.js';

/** Classes of SQLSTATE: a value cannot be what it is, breaks a constraint, or is beyond a limit of the program. */
const refusesData = /^(22|23|54)/;

/** A broker's message is acknowledged after the record: a default of the role's must not let a crash forget it. */
const durably =
  "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

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
  private readonly underway = new Set<Promise<unknown>>();

  constructor(
    private readonly database: Database,
    private readonly identity: WorkerIdentity,
    private readonly taker: Nudge,
    log: Log,
  ) {
    this.throttled = new ThrottledLog(log);
    this.connection = database.infrastructure('records', log, ['SET lock_timeout = 1000', durably]);
  }

  async close(): Promise<void> {
    this.closed = true;
    await this.connection.close();
  }

  /** Resolves when nothing is being recorded any more, or after `limitMs`. */
  async settled(limitMs: number): Promise<void> {
    const late = pause(limitMs, 'late', { ref: false });
    // What was stored first is recorded next, a moment later.
    while (this.underway.size > 0) {
      if ((await Promise.race([Promise.allSettled(this.underway).then(() => nextTurn()), late])) === 'late') return;
    }
  }

  /**
   * The number of rows changed; 0 also when the row is not this worker's any more. A message has no row that anybody
   * could free: its record is tried on when the number is lost, and the message acknowledged when it is done.
   */
  async record(delivery: Delivery, statement: Bound): Promise<number> {
    return this.recordAll([delivery], statement);
  }

  /** Fetched and not started: free for everybody, nothing charged. */
  async giveBack(deliveries: readonly Delivery[]): Promise<void> {
    const [first] = deliveries;
    if (!first) return;
    const messages = deliveries.filter(({ message }) => message);
    const rows = deliveries.filter(({ message }) => !message);
    // All carry one number: what was fetched under a lost one was dropped when it was lost. Messages carry what they like.
    await Promise.all([this.giveBackSome(rows), this.giveBackSome(messages)]);
  }

  /** Of no delivery in particular. `undefined` when the process stopped before it was done. */
  async untilRecorded(what: string, ...statements: readonly Bound[]): Promise<number | undefined> {
    return this.tried(what, () => !this.closed, statements);
  }

  /** The same for what may be refused for what it is: false then. */
  async unlessRefused(what: string, statement: Bound): Promise<boolean> {
    try {
      await this.tried(what, () => !this.closed, [statement], true);
      return true;
    } catch {
      return false;
    }
  }

  private async giveBackSome(deliveries: readonly Delivery[]): Promise<void> {
    const [first] = deliveries;
    if (!first) return;
    const ids = deliveries.map((delivery) => delivery.eventId);
    const durables = deliveries.map((delivery) => delivery.durable);
    await this.recordAll(deliveries, this.database.deliveries.giveBack(first.lease, ids, durables));
  }

  private async recordAll(deliveries: readonly Delivery[], statement: Bound): Promise<number> {
    const [first] = deliveries;
    if (!first) return 0;
    const mine = (): boolean => !this.closed && (!!first.message || this.identity.number === first.lease);
    const what = `what came of event ${first.eventId}`;
    const rows = await this.tried(what, mine, [...adoption(this.database, deliveries), statement]);
    if (rows !== undefined) this.recorded(deliveries, rows);
    return rows ?? 0;
  }

  private recorded(deliveries: readonly Delivery[], rows: number): void {
    for (const { message } of deliveries) message?.ack();
    // The taker sleeps until what it knew to be next: a delivery that comes back is news to it.
    if (rows > 0) this.taker.nudge();
  }

  private tried(
    what: string,
    go: () => boolean,
    statements: readonly Bound[],
    mayBeRefused = false,
  ): Promise<number | undefined> {
    const record = this.tries(what, go, statements, mayBeRefused);
    this.underway.add(record);
    const over = (): boolean => this.underway.delete(record);
    record.then(over, over);
    return record;
  }

  private async tries(
    what: string,
    go: () => boolean,
    statements: readonly Bound[],
    mayBeRefused: boolean,
  ): Promise<number | undefined> {
    for (let tries = 1; go(); tries++) {
      try {
        return await this.write(statements);
      } catch (error) {
        if (mayBeRefused && refusesData.test(errorCode(error) ?? '')) throw error;
        this.throttled.warn('record', `outbox: ${what} cannot be recorded yet: ${(error as Error).message}`);
        await pause(loopBackoff(tries, 50, 2_000));
      }
    }
    return undefined;
  }

  /** The number of rows that the last of them changed. */
  private async write(statements: readonly Bound[]): Promise<number> {
    return (await this.connection.run(...statements)).at(-1)?.rowCount ?? 0;
  }

  /**
   * The handler's connection ended under it. That this statement gets through at once is the probe: the database lives,
   * so the handler (or its SQL, or a limit on idle transactions) is suspect and one interruption is counted. When it
   * does not get through it is an outage, and nothing is charged.
   */
  async interrupted(delivery: Delivery): Promise<void> {
    const interrupt = this.database.deliveries.interrupt(delivery.eventId, delivery.durable, delivery.lease);
    try {
      this.recorded([delivery], await this.write([...adoption(this.database, [delivery]), interrupt]));
    } catch (error) {
      // Busy is an answer: the database lives, and the handler's backend has not yet rolled back.
      if (databaseTrouble(error) === 'busy') await this.record(delivery, interrupt);
      else await this.giveBack([delivery]);
    }
  }

  /** One of its deliveries ended as cancelled: the last one to do so gives the unique key back. */
  async cancelled(eventId: string): Promise<void> {
    await this.untilRecorded(`that event ${eventId} was cancelled`, this.database.cancelling.plain.byId(eventId));
  }

  /** Nothing began, nothing is charged; tried again after `delayMs`. */
  async postpone(delivery: Delivery, delayMs: number): Promise<void> {
    await this.record(
      delivery,
      this.database.deliveries.postpone(delivery.eventId, delivery.durable, delivery.lease, interval(delayMs)),
    );
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
