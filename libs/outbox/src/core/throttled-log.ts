/** What a loop needs of a logger; Nest's `Logger` has it. */
export interface Log {
  log(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** Keys may carry parts of messages; more of them than this are forgotten. */
const mostKeys = 1_000;

/**
 * At most one line a second for each `key`; what was held back is counted in the next line. A loop that meets the same
 * error on every turn says so without drowning everything else.
 */
export class ThrottledLog {
  private readonly last = new Map<string, { at: number; held: number }>();

  constructor(
    private readonly out: Log,
    private readonly everyMs = 1_000,
    private readonly now: () => number = () => performance.now(),
  ) {}

  warn(key: string, message: string): void {
    this.say('warn', key, message);
  }

  error(key: string, message: string): void {
    this.say('error', key, message);
  }

  private say(level: 'warn' | 'error', key: string, message: string): void {
    const now = this.now();
    const entry = this.last.get(key);
    if (entry && now - entry.at < this.everyMs) {
      entry.held += 1;
      return;
    }
    const held = entry?.held ?? 0;
    if (this.last.size >= mostKeys) this.last.clear();
    this.last.set(key, { at: now, held: 0 });
    this.out[level](held > 0 ? `${message} (and ${held} more like it)` : message);
  }
}
