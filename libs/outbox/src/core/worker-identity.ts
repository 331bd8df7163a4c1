/** A second more than the server gives to a message of the library (`statement_timeout` of infrastructure connections). */
const doubtMs = 10_000;

/**
 * The number under which this process leases rows, and whether it still holds it. The number lives as long as the
 * session advisory lock behind it: whoever loses the lock loses the number, and gets a new one.
 */
export class WorkerIdentity {
  /** `undefined` while the process holds no lock: it then leases nothing. */
  number: number | undefined;
  /** Other live workers seen at the last sweep; the relay hands over more when it is alone. */
  others = 0;
  private doubtedAt: number | undefined;
  private readonly lostListeners = new Set<() => void>();

  onLost(listener: () => void): void {
    this.lostListeners.add(listener);
  }

  /**
   * A statement that leases rows was sent and not answered: it may have been done, and then rows are leased to this
   * process of which it does not know.
   */
  doubt(): void {
    this.doubtedAt = performance.now();
  }

  /** Whether such rows may be about, or may still come about while the server works on a message nobody waits for. */
  get doubtful(): boolean {
    return this.doubtedAt !== undefined;
  }

  /** All that was unknown is free, as of `lookedAt`; only a look that came late enough ends the doubt. */
  cleared(lookedAt: number): void {
    if (this.doubtedAt !== undefined && lookedAt - this.doubtedAt > doubtMs) this.doubtedAt = undefined;
  }

  lost(): void {
    this.number = undefined;
    for (const listener of this.lostListeners) listener();
  }
}
