import { jittered } from '../core/backoff.js';
import type { Log } from '../core/throttled-log.js';
import { ThrottledLog } from '../core/throttled-log.js';
import type { Nudge } from '../core/wake-signal.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';

/**
 * What may be new for other processes: rows in the queue, or deliveries that nobody has. The words of the payload; a
 * third one, `jobs`, is said by whoever asks for a run of a job.
 */
export type News = 'queue' | 'deliveries';

/**
 * Two NOTIFYs are this far apart: each takes a lock of the whole database while it commits, and wakes every worker. The
 * first one after a pause goes out at once.
 */
const apartMs = 5;

/**
 * Tells other processes that there is work, by NOTIFY on a connection of the library's own: never in the caller's
 * transaction, whose commit would wait for that lock, and never by a trigger. What was new meanwhile goes out together;
 * what is lost costs a poll.
 */
export class Notifier {
  readonly queue: Nudge = { nudge: (ageMs) => this.tell('queue', ageMs) };
  readonly deliveries: Nudge = { nudge: (ageMs) => this.tell('deliveries', ageMs) };
  private readonly throttled: ThrottledLog;
  /** What is new, and how long ago the oldest of it was written. */
  private readonly news = new Map<News, number>();
  private timer: NodeJS.Timeout | undefined;
  private sentAt = Number.NEGATIVE_INFINITY;
  private open = false;

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
    log: Log,
  ) {
    this.throttled = new ThrottledLog(log);
  }

  /** Once the boot gate knows how the server is reached; what was published before is found by polls. */
  start(): void {
    this.open = true;
  }

  close(): void {
    this.open = false;
    clearTimeout(this.timer);
  }

  private tell(news: News, ageMs = 0): void {
    if (this.open) this.news.set(news, Math.max(ageMs, this.news.get(news) ?? 0));
    if (this.timer || !this.open) return;
    const wait = Math.max(0, this.sentAt + apartMs - performance.now());
    this.timer = setTimeout(() => void this.send(), wait);
  }

  private async send(): Promise<void> {
    const news = [...this.news];
    this.news.clear();
    try {
      await this.connection.run(...news.map(([each, ageMs]) => this.database.notify(`${each} ${Math.ceil(ageMs)}`)));
      this.sentAt = performance.now();
    } catch (error) {
      // A stop closes the connection under what is being told.
      if (this.open)
        this.throttled.warn(
          'notify',
          `others were not told of new work, their poll finds it: ${(error as Error).message}`,
        );
      // A connection that is refused again and again is not asked for at every commit.
      this.sentAt = performance.now() + jittered(1_000);
    }
    this.timer = undefined;
    for (const [each, ageMs] of [...this.news]) this.tell(each, ageMs);
  }
}
