import type { LoggerService } from '@nestjs/common';

/** Prints one line without disturbing what else is on the screen. */
export type Note = (line: string) => void;

/** Nest's logger in the demo: warnings and errors only, one line each. */
export class DemoLogger implements LoggerService {
  constructor(private readonly note: Note) {}

  log(): void {}

  warn(message: unknown): void {
    this.note(`warning: ${String(message)}`);
  }

  error(message: unknown): void {
    this.note(`error: ${message instanceof Error ? message.message : String(message)}`);
  }
}
