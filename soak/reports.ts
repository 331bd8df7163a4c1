import type { LoggerService } from '@nestjs/common';
import type { Shift } from './shift.js';

/** What a process of the soak tells the one that started it. */
export type SoakReport =
  | { readonly kind: 'ready' }
  | { readonly kind: 'log'; readonly line: string }
  | { readonly kind: 'operated'; readonly shift: Shift }
  | { readonly kind: 'published'; readonly committed: readonly string[]; readonly uncertain: number };

export function report(message: SoakReport): Promise<void> {
  return new Promise((resolve) => {
    if (process.connected) process.send?.(message, undefined, undefined, () => resolve());
    else resolve();
  });
}

/** Only what is wrong. */
export class ReportingLogger implements LoggerService {
  log(): void {}

  warn(message: unknown): void {
    void report({ kind: 'log', line: `warn ${String(message)}` });
  }

  error(message: unknown, ...more: unknown[]): void {
    void report({ kind: 'log', line: `error ${String(message)} ${more.map(String).join(' ')}` });
  }
}

/** What a process is told through its environment. */
export interface SoakTask {
  readonly url: string;
  /** Undefined: the database carries first deliveries as well. */
  readonly natsUrl: string | undefined;
  readonly seed: number;
  readonly index: number;
  readonly eventsPerSecond: number;
}
