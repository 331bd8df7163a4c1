import type { Log } from '../core/throttled-log.js';
import type { DeadLetterNotice, OutboxSettings } from '../outbox.options.js';

/** A row in `dead_letters` is an alert: an error line always, and the application's own hook. */
export class DeadLetterAlert {
  constructor(
    private readonly settings: OutboxSettings,
    private readonly log: Log,
  ) {}

  async raise(letter: DeadLetterNotice): Promise<void> {
    this.log.error(
      `dead letter: '${letter.durable}' gave up on ${letter.type} ${letter.eventId} after ${letter.attempts} attempts: ${firstLine(letter.error)}`,
    );
    try {
      await this.settings.onDeadLetter?.(letter);
    } catch (error) {
      this.log.error(
        `onDeadLetter failed for event ${letter.eventId}: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  }
}

export function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? '';
}
