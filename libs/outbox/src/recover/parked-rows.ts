import type { Log } from '../core/throttled-log.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { freedAtOnce } from '../tables/pauses.table.js';

const firstId = '00000000-0000-0000-0000-000000000000';
/** A claim that commits its parking more than a minute after the pause has ended was stopped in the middle: that is rare. */
const strandedEveryMs = 60_000;

/**
 * Frees what pauses that are over had parked, a chunk of each at a time. Whoever resumes does so as well; what that one
 * leaves, what ends by its time, and what is committed late are found here.
 */
export class ParkedRows {
  /** Where the next chunk of a pause begins. */
  private readonly from = new Map<number, string>();
  private strandedAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
    private readonly log: Log,
  ) {}

  /** Resolves to how many rows are free now. */
  async free(): Promise<number> {
    const { pauses } = this.database;
    const [, { rows }] = await this.connection.run(pauses.expire(), pauses.over());
    const over = rows.map(({ id }) => id);
    let freed = 0;
    for (const id of new Set([...over, ...(await this.stranded())])) freed += await this.chunk(id);
    if (over.length > 0 && freed === 0) await this.connection.run(pauses.release(over));
    if (freed > 0) this.log.log(`${freed} deliveries were paused, and are free again`);
    return freed;
  }

  private async stranded(): Promise<number[]> {
    if (performance.now() - this.strandedAt < strandedEveryMs) return [];
    const [{ rows }] = await this.connection.run(this.database.pauses.stranded());
    // As long as there is something, the next look comes with the next sweep.
    if (rows.length === 0) this.strandedAt = performance.now();
    return rows.map(({ id }) => id);
  }

  private async chunk(id: number): Promise<number> {
    const [{ rows }] = await this.connection.run(this.database.pauses.free(id, this.from.get(id) ?? firstId));
    const { freed = 0, last = null } = rows[0] ?? {};
    if (freed < freedAtOnce || last === null) this.from.delete(id);
    else this.from.set(id, last);
    return freed;
  }
}
