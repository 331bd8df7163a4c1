import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { jobLockKey } from '../tables/schema/schema-name.js';

/**
 * The session advisory locks of the jobs that run in this process, all on one connection that does nothing slow. Session
 * locks are re-entrant: the server would grant one twice to this session, so it is remembered here what is held.
 */
export class JobLocks {
  private readonly held = new Set<string>();
  /** Asked for, and not answered yet: asked for twice it would be granted twice. */
  private readonly asked = new Set<string>();
  private losses = 0;

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
  ) {}

  holds(job: string): boolean {
    return this.held.has(job);
  }

  /** False when another session has it, and when somebody here has it or asks for it. */
  async take(job: string): Promise<boolean> {
    if (this.held.has(job) || this.asked.has(job)) return false;
    this.asked.add(job);
    try {
      return await this.ask(job);
    } finally {
      this.asked.delete(job);
    }
  }

  /**
   * Whether no session holds it. To take it and let it go would tell, too; but while the answer is on its way, or for as
   * long as this process is paused, it would keep others away.
   */
  async isFree(job: string): Promise<boolean> {
    if (this.held.has(job)) return false;
    const { losses } = this;
    const [{ rows }] = await this.connection.run(this.database.jobs.free(jobLockKey(job)));
    // What was seen over a connection that is lost by now says nothing: its holder may have been cut off with it.
    return rows[0]?.free === true && this.losses === losses;
  }

  async release(job: string): Promise<void> {
    if (!this.held.delete(job)) return;
    await this.connection.run(this.database.jobs.unlock(jobLockKey(job)));
  }

  /** The connection is gone, and every lock with it. */
  lost(): string[] {
    this.losses += 1;
    const lost = [...this.held];
    this.held.clear();
    return lost;
  }

  private async ask(job: string): Promise<boolean> {
    const { losses } = this;
    const [{ rows }] = await this.connection.run(this.database.jobs.lock(jobLockKey(job)));
    if (rows[0]?.got !== true) return false;
    if (this.losses === losses) {
      this.held.add(job);
      return true;
    }
    // A connection was lost meanwhile, perhaps the one that answered: its answer and its end can arrive together. Then
    // nobody would hear again that the lock is gone; and if it was granted on the next one, it must not stay there.
    await this.connection.run(this.database.jobs.unlock(jobLockKey(job)));
    return false;
  }
}
