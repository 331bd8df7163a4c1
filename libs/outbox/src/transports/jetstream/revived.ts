import { BackgroundService } from '../../core/background-service.js';
import type { Log } from '../../core/throttled-log.js';
import type { ServedDurable } from '../../core/transport.js';

const everyMs = 3_000;
const idleMs = 3_600_000;

/**
 * Durables that were retired when this process started, and so got no consumer. Somebody may revive one, and what is
 * published from then on would wait for the next start of a worker, or for the reconciler, a day.
 */
export class Revived extends BackgroundService {
  private retired: ReadonlySet<number>;

  constructor(
    retired: readonly ServedDurable[],
    private readonly read: () => Promise<readonly ServedDurable[]>,
    private readonly serve: (durable: ServedDurable) => Promise<void>,
    log: Log,
  ) {
    super('outbox.jetstream.revived', log);
    this.retired = new Set(retired.map(({ id }) => id));
  }

  override start(): void {
    if (this.retired.size > 0) super.start();
  }

  protected async turn(): Promise<number> {
    if (this.retired.size === 0) return idleMs;
    for (const durable of await this.read()) {
      if (durable.types.length === 0 || !this.retired.has(durable.id) || this.stopping) continue;
      await this.serve(durable);
      this.retired = new Set([...this.retired].filter((id) => id !== durable.id));
    }
    return everyMs;
  }
}
