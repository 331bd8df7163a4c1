import type { ConsumerService } from '../consume/consumer.service.js';
import { BackgroundService } from '../core/background-service.js';
import { jittered } from '../core/backoff.js';
import type { Delivery } from '../core/envelope.js';
import { Floor } from '../core/floor.js';
import type { Log } from '../core/throttled-log.js';
import type { WakeSignal } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { Database } from '../tables/database.js';
import type { TakenRow } from '../tables/deliveries.table.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';

/** How long a process may take to become quiet for a delivery that must run alone. */
const quietMs = 30_000;
/** When it did not become quiet (a handler ignores its signal), the next try waits this long; other workers may do it. */
const restlessMs = 60_000;

/**
 * Fetches due deliveries that nobody holds: fresh ones beyond a hand-over, retries, freed and retried by operators. A
 * delivery that was interrupted three times is fetched apart, into a process in which nothing else is leased, so that
 * a crash is charged to the event that causes it and never a fourth time to a neighbour.
 */
export class TakerService extends BackgroundService {
  private readonly floor = new Floor();
  private aloneNotBefore = 0;

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
    private readonly consumer: ConsumerService,
    private readonly identity: WorkerIdentity,
    private readonly settings: OutboxSettings,
    wake: WakeSignal,
    log: Log,
  ) {
    super('outbox.taker', log, wake);
  }

  protected async turn(): Promise<number> {
    const worker = this.identity.number;
    const nextMs = worker === undefined ? undefined : await this.take(worker).catch((error) => this.unanswered(error));
    return Math.min(jittered(this.settings.pollMs), nextMs ?? Number.POSITIVE_INFINITY);
  }

  /** Takes what there is room for; returns the milliseconds until the next row is due, if one waits. */
  private async take(worker: number): Promise<number | undefined> {
    const room = this.consumer.room();
    if (![...room.values()].some((free) => free > 0)) {
      this.consumer.expectMore(room.keys());
      return undefined;
    }
    const { floor, full } = this.floor.next();
    const { deliveries } = this.database;
    const [{ rows }, outlook] = await this.connection.run(
      deliveries.take([...room.keys()], [...room.values()], worker, floor),
      deliveries.outlook([...room.keys()]),
    );
    const next = outlook.rows[0];
    if (!next) throw new Error('the outlook statement returned no row');
    // Also those without room: nothing of them was looked at, so more may wait, and more that is older than the floor.
    const more = [...room.keys()].filter((durable) => count(rows, durable) >= (room.get(durable) ?? 0));
    if (more.length === 0) this.floor.passed(next.next_from, full);
    else if (full) this.floor.reset();
    this.deliver(rows, worker);
    // After what was fetched has taken its room, or that room would ask for more at once.
    this.consumer.expectMore(more);
    if (next.alone_waits) await this.runAlone();
    return next.next_ms ?? undefined;
  }

  private unanswered(error: unknown): never {
    this.identity.doubt();
    throw error;
  }

  private deliver(rows: readonly TakenRow[], worker: number): void {
    // Between the statement and here the number may have been lost: the rows are freed with it.
    if (rows.length > 0 && this.identity.number === worker)
      this.consumer.receive(rows.map((row) => leased(row, worker)));
  }

  private async runAlone(): Promise<void> {
    if (performance.now() < this.aloneNotBefore) return;
    const quiet = await this.consumer.alone(quietMs, () => this.fetchAlone());
    this.aloneNotBefore = quiet ? 0 : performance.now() + restlessMs;
    this.wake.nudge();
  }

  private async fetchAlone(): Promise<Delivery | undefined> {
    const worker = this.identity.number;
    if (worker === undefined) return undefined;
    const [{ rows }] = await this.connection.run(
      this.database.deliveries.takeAlone([...this.consumer.durables], worker),
    );
    const [row] = rows;
    return row && this.identity.number === worker ? leased(row, worker) : undefined;
  }
}

function count(rows: readonly TakenRow[], durable: number): number {
  return rows.filter((row) => row.durable === durable).length;
}

function leased(row: TakenRow, lease: number): Delivery {
  return { eventId: row.event_id, durable: row.durable, lease };
}
