import { setImmediate as othersFirst } from 'node:timers/promises';

/** Something that can be told that there is work. */
export interface Nudge {
  /** `ageMs`: how long ago the oldest of it was written; it was committed just now. */
  nudge(ageMs?: number): void;
}

/** Tells several. */
export function both(...all: readonly Nudge[]): Nudge {
  return {
    nudge: (ageMs) => {
      for (const each of all) each.nudge(ageMs);
    },
  };
}

/**
 * Wakes one loop. A nudge that comes while the loop is busy is kept, so that nothing published during a pass waits for
 * the poll. A lost nudge costs no more than one poll.
 */
export class WakeSignal implements Nudge {
  private nudged = false;
  private wake: (() => void) | undefined;

  nudge(): void {
    this.nudged = true;
    this.wake?.();
  }

  /** Resolves after `milliseconds`, at a nudge, or when `signal` aborts, whichever is first; takes the nudge with it. */
  async wait(milliseconds: number, signal: AbortSignal): Promise<void> {
    if (!this.nudged && !signal.aborted) await this.sleep(milliseconds, signal);
    // A loop nudged in every turn, whose turns wait for nothing, would go round in microtasks: no timer and no socket of
    // the process would ever have its turn again.
    else await othersFirst();
    this.nudged = false;
  }

  private sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
    return new Promise<void>((resolve) => {
      const timer = setTimeout(done, milliseconds);
      const wake = done;
      function done(): void {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        resolve();
      }
      this.wake = wake;
      signal.addEventListener('abort', done, { once: true });
    });
  }
}
