import type { ConsumerService } from '../consume/consumer.service.js';
import { BackgroundService } from '../core/background-service.js';
import { jittered } from '../core/backoff.js';
import type { Log } from '../core/throttled-log.js';
import type { Nudge } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { ParkedRows } from './parked-rows.js';

/** How often dead workers are looked for; with the taker's nudge their deliveries run elsewhere within two seconds. */
const everyMs = 1_000;

/** Frees what dead workers had leased and what pauses that are over had parked, and learns how many live workers there are. */
export class SweepService extends BackgroundService {
  private readonly parked: ParkedRows;

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
    private readonly consumer: ConsumerService,
    private readonly identity: WorkerIdentity,
    private readonly taker: Nudge,
    private readonly log: Log,
  ) {
    super('outbox.sweep', log);
    this.parked = new ParkedRows(database, connection, log);
  }

  protected async turn(): Promise<number> {
    const own = this.identity.number;
    // Without a number the one it lost looks dead, and what is leased under it would be charged.
    if (own === undefined) return jittered(everyMs);
    if (this.identity.doubtful) await this.freeUnknown(own);
    const [{ rows }] = await this.connection.run(this.database.workers.sweep(own));
    const { freed = 0, others = 0 } = rows[0] ?? {};
    this.identity.others = others;
    if (freed > 0) this.log.warn(`${freed} deliveries of workers that are gone are free again`);
    const parked = await this.parked.free();
    if (freed + parked === 0) return jittered(everyMs);
    this.taker.nudge();
    // One sweep frees at most 2,000 rows of a worker and 5,000 of a pause; there may be more.
    return 0;
  }

  /** Again and again until no unanswered statement can still be running. */
  private async freeUnknown(own: number): Promise<void> {
    const lookedAt = performance.now();
    const { held } = this.consumer;
    const [{ rowCount }] = await this.connection.run(
      this.database.deliveries.freeUnknown(
        own,
        held.map(({ eventId }) => eventId),
        held.map(({ durable }) => durable),
      ),
    );
    this.identity.cleared(lookedAt);
    if (rowCount === 0) return;
    this.log.warn(`${rowCount} deliveries whose hand-over was lost on its way are free again`);
    this.taker.nudge();
  }
}
