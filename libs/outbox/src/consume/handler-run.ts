import { HandlerTimeoutError } from '../outbox.errors.js';

export type RunResult =
  | { readonly kind: 'returned' }
  | { readonly kind: 'threw'; readonly error: unknown }
  | { readonly kind: 'timeout'; readonly error: HandlerTimeoutError };

/** One run of a user's method: its signal, its time limit, and the moment it really ended. */
export class HandlerRun {
  private readonly aborter = new AbortController();
  private giveUp: (result: RunResult) => void = () => {};
  /** Resolves when the method's promise has settled, which may be long after the time limit. */
  settled: Promise<void> = Promise.resolve();

  get signal(): AbortSignal {
    return this.aborter.signal;
  }

  /** Waits no longer for the method, whatever it does, and aborts its signal. */
  abandon(reason: Error): void {
    this.aborter.abort(reason);
    this.giveUp({ kind: 'threw', error: reason });
  }

  async run(work: () => Promise<unknown>, timeoutMs: number, timeout: () => HandlerTimeoutError): Promise<RunResult> {
    const ended: Promise<RunResult> = work().then(
      () => ({ kind: 'returned' }),
      (error: unknown) => ({ kind: 'threw', error }),
    );
    this.settled = ended.then(() => {});
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise<RunResult>((resolve) => {
      this.giveUp = resolve;
      timer = setTimeout(() => resolve({ kind: 'timeout', error: timeout() }), timeoutMs);
    });
    try {
      const result = await Promise.race([ended, limit]);
      if (result.kind === 'timeout') this.aborter.abort(result.error);
      return result;
    } finally {
      clearTimeout(timer);
    }
  }
}
