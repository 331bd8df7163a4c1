import { setTimeout as pause } from 'node:timers/promises';
import { findNats, natsMissing, startNats, type ThrowawayNats } from 'throwaway-nats';
import { DemoError, wordsOf } from './demo-error.js';

/** Long enough that everybody notices. */
const awayMs = 1_000;

/**
 * A nats-server of the demo's own. Unlike Postgres it needs no process in between: it is apart from the terminal's group,
 * and goes with this process however that ends.
 */
export class Broker {
  restarts = 0;
  private restarting: Promise<void> = Promise.resolve();

  private constructor(private readonly server: ThrowawayNats) {}

  static async start(): Promise<Broker> {
    if (!findNats()) throw new DemoError(natsMissing);
    try {
      return new Broker(await startNats());
    } catch (error) {
      throw new DemoError(`the throw-away nats-server did not start: ${wordsOf(error)}`, 1, { cause: error });
    }
  }

  get url(): string {
    return this.server.url;
  }

  get version(): string {
    return this.server.version;
  }

  /** Ends it at once (SIGKILL), and after a moment starts it again with what it had stored. */
  restart(): Promise<void> {
    this.restarting = this.again();
    return this.restarting;
  }

  async stop(): Promise<void> {
    // Or it would be started after it was removed.
    await this.restarting.catch(() => {});
    await this.server.stop();
  }

  private async again(): Promise<void> {
    await this.server.kill();
    await pause(awayMs);
    await this.server.start();
    this.restarts += 1;
  }
}
