import { eventually } from '../../support/eventually.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import type { FaultSite } from './fault-site.js';

/** A dozen processes, one after the other; on a busy machine each takes its time to start. */
export const supervisedMs = 180_000;

/** Starts a worker whenever the last one is gone, as a supervisor would. */
export class Supervisor {
  private constructor(
    private readonly site: FaultSite,
    private worker: WorkerProcess,
  ) {}

  static async over(site: FaultSite): Promise<Supervisor> {
    return new Supervisor(site, await site.worker());
  }

  dead(): Promise<{ event_id: string; error: string }[]> {
    return this.site.database.query('SELECT event_id, error FROM outbox.dead_letters ORDER BY event_id');
  }

  /** Until so many letters are dead; resolves to how many workers died. */
  async untilDead(count: number): Promise<number> {
    let deaths = 0;
    await eventually(
      `${count} dead letters`,
      async () => {
        if (!this.worker.running) {
          deaths += 1;
          this.worker = await this.site.worker();
        }
        return (await this.dead()).length === count;
      },
      supervisedMs,
    );
    return deaths;
  }

  /** Whether nothing else began in its process while it ran, after its first `times` runs. */
  async ranAlone(eventId: string, times: number): Promise<boolean> {
    const beside = await this.site.database.value<number>(
      `WITH p AS (SELECT at, pid, row_number() OVER (ORDER BY at) AS n FROM runs WHERE event_id = $1)
       SELECT count(*)::int FROM p JOIN runs r ON r.pid = p.pid AND r.event_id <> $1 AND r.at >= p.at WHERE p.n > $2`,
      [eventId, times],
    );
    return beside === 0;
  }
}
