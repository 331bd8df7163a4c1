import type { ConsumerService } from '../consume/consumer.service.js';
import { BackgroundService } from '../core/background-service.js';
import type { Log } from '../core/throttled-log.js';
import type { Nudge } from '../core/wake-signal.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';

const chunk = 5_000;
/** After everything is filled in: a crashed pod's unfinished back-fill is picked up at the next look. */
const idleMs = 60_000;
/** Transactions that were cancelling something when this process registered its durables are waited for, at most so long. */
const cancelsMs = 30_000;

/** Fills in the history of types registered `from: 'beginning'`, in chunks; where it stands is kept in the database. */
export class BackfillService extends BackgroundService {
  /** Every cancel that is open by now knows our durables. */
  private known = false;
  private startedAt: number | undefined;

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
    private readonly consumer: ConsumerService,
    private readonly taker: Nudge,
    log: Log,
  ) {
    super('outbox.backfill', log);
  }

  protected async turn(): Promise<number> {
    if (this.consumer.durables.length === 0) return idleMs;
    if (!(await this.cancelsKnowUs())) return 200;
    const [{ rows }] = await this.connection.run(this.database.durables.backfill([...this.consumer.durables], chunk));
    const { open = 0, found = 0 } = rows[0] ?? {};
    if (found > 0) this.taker.nudge();
    return open > 0 ? 0 : idleMs;
  }

  /**
   * A transaction that cancelled an event before we registered has left no mark for our durables, and the one for all is
   * not to be seen before it commits: filled in now, the event would run.
   */
  private async cancelsKnowUs(): Promise<boolean> {
    if (this.known) return true;
    this.startedAt ??= performance.now();
    const [{ rows }] = await this.connection.run(this.database.durables.quiet());
    this.known = rows[0]?.quiet === true || performance.now() - this.startedAt > cancelsMs;
    return this.known;
  }
}
