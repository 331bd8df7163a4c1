import { loopBackoff } from './backoff.js';
import { databaseTrouble, errorCode } from './database-errors.js';
import { type Log, ThrottledLog } from './throttled-log.js';
import { WakeSignal } from './wake-signal.js';

/** Between two tries after an error, at most. A broker that is away costs the database nothing, and is waited for keenly. */
const mostMs = 10_000;
const mostBrokerMs = 2_000;

/**
 * One lifecycle for every loop of the library: the service owns waiting, errors and stop; what it does in one turn is
 * a function that can be called without timers.
 *
 *   new ── start ──▶ turning ⇄ waiting ── stop ──▶ (the turn under way ends) ──▶ stopped
 *                       └─ error: logged at most once a second, then waits 0.1 s, 0.2 s … 10 s with jitter
 *
 * `start` and `stop` may be called any number of times, in any order. A stopped service does not start again.
 */
export abstract class BackgroundService {
  protected readonly throttled: ThrottledLog;
  private readonly aborter = new AbortController();
  private running: Promise<void> | undefined;

  protected constructor(
    readonly name: string,
    log: Log,
    /** Shared with whoever may nudge this loop. */
    protected readonly wake = new WakeSignal(),
  ) {
    this.throttled = new ThrottledLog(log);
  }

  start(): void {
    if (this.aborter.signal.aborted) return;
    this.running ??= this.loop(this.aborter.signal);
  }

  /** Ends after the turn that is under way. */
  async stop(): Promise<void> {
    this.aborter.abort();
    await this.running;
  }

  protected get stopping(): boolean {
    return this.aborter.signal.aborted;
  }

  /** Does one turn and returns the milliseconds to wait before the next; a nudge shortens the wait. */
  protected abstract turn(signal: AbortSignal): Promise<number>;

  private async loop(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      const pause = await this.attempt(signal, failures + 1);
      failures = pause.failed ? failures + 1 : 0;
      // After an error a nudge must not shorten the wait, or a busy publisher would turn the backoff into a hot loop.
      await (pause.failed ? new WakeSignal() : this.wake).wait(pause.milliseconds, signal);
    }
  }

  private async attempt(signal: AbortSignal, failures: number): Promise<{ milliseconds: number; failed: boolean }> {
    try {
      return { milliseconds: await this.turn(signal), failed: false };
    } catch (error) {
      if (!signal.aborted) this.report(error);
      return { milliseconds: loopBackoff(failures, 100, isBrokerTrouble(error) ? mostBrokerMs : mostMs), failed: true };
    }
  }

  private report(error: unknown): void {
    const text = error instanceof Error ? error.message : String(error);
    const trouble = databaseTrouble(error);
    if (isBrokerTrouble(error)) this.throttled.warn('turn', `${this.name} waits for the broker: ${text}`);
    else if (trouble === 'other') this.throttled.error('turn', `${this.name} failed and goes on: ${text}`);
    else this.throttled.warn('turn', `${this.name} waits, the database does not answer (${trouble}): ${text}`);
  }
}

/** Said by transports about what carries their messages. */
function isBrokerTrouble(error: unknown): boolean {
  return errorCode(error) === 'OUTBOX_BROKER';
}
