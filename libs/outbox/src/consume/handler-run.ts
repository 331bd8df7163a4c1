import type { HandlerTimeoutError } from '../outbox.errors.js';

export type RunResult =
  | { readonly kind: 'returned' }
  | { readonly kind: 'threw'; readonly error: unknown }
  | { readonly kind: 'timeout'; readonly error: HandlerTimeoutError };

/** One run of a user's method: its signal, its time limit, and the moment it really ended. */
export class HandlerRun {
  private aborter: AbortController | undefined;
  private giveUp: (result: RunResult) => void = () => {};
  /** Resolves when the method's promise has settled, which may be long after the time limit. */
  settled: Promise<void> = Promise.resolve();

  /** Made when it is first asked for: most handlers never look at it. */
  get signal(): AbortSignal {
    return this.controller().signal;
  }

  /** Asks the method to end, and goes on waiting for it. */
  abort(reason: Error): void {
    this.controller().abort(reason);
  }

  /** Waits no longer for the method, whatever it does, and aborts its signal. */
  abandon(reason: Error): void {
    this.giveUp({ kind: 'threw', error: reason });
    this.controller().abort(reason);
  }

  run(work: () => Promise<unknown>, timeoutMs: number, timeout: () => HandlerTimeoutError): Promise<RunResult> {
    return new Promise((resolve) => {
      const limit = setTimeout(() => {
        const error = timeout();
        end({ kind: 'timeout', error });
        this.controller().abort(error);
      }, timeoutMs);
      const end = (result: RunResult): void => {
        clearTimeout(limit);
        resolve(result);
      };
      this.giveUp = end;
      this.settled = work().then(
        () => end({ kind: 'returned' }),
        (error: unknown) => end({ kind: 'threw', error }),
      );
    });
  }

  private controller(): AbortController {
    this.aborter ??= new AbortController();
    return this.aborter;
  }
}
