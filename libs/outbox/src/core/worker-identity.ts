/**
 * The number under which this process leases rows, and whether it still holds it. The number lives as long as the
 * session advisory lock behind it: whoever loses the lock loses the number, and gets a new one.
 */
export class WorkerIdentity {
  /** `undefined` while the process holds no lock: it then leases nothing. */
  number: number | undefined;
  /** Other live workers seen at the last sweep; the relay hands over more when it is alone. */
  others = 0;
  private readonly lostListeners = new Set<() => void>();

  onLost(listener: () => void): void {
    this.lostListeners.add(listener);
  }

  lost(): void {
    this.number = undefined;
    for (const listener of this.lostListeners) listener();
  }
}
