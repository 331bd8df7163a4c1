import { Command } from 'nest-commander';
import { isUuid } from '../../core/uuid.js';
import type { DeadLetter, DeadLetterQuery } from '../../index.js';
import { wrongUsage } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { knownDurable } from '../named.js';
import { type CommonOptions, common, limit, Options } from '../options.js';
import { lettersText } from '../render/deliveries.js';

interface DeadLettersOptions extends CommonOptions {
  readonly durable?: string;
  readonly tenant?: string;
  readonly limit?: number;
  readonly cursor?: DeadLetterQuery['after'];
}

@Command({ name: 'dead-letters', description: 'dead letters that are open, oldest first' })
@Options(
  [
    { flags: '--durable <name>', description: 'of this durable' },
    { flags: '--tenant <id>', description: 'of this tenant' },
    limit,
    { flags: '--cursor <cursor>', description: 'the next page: what the one before says at its end', parse: cursor },
  ],
  common,
)
export class DeadLettersCommand extends OutboxCommand<DeadLettersOptions> {
  protected async answer(_: readonly string[], options: DeadLettersOptions): Promise<ExitCode> {
    const { deadLetters, durables } = await this.session.open(options);
    const { durable, tenant, cursor } = options;
    if (durable !== undefined) await knownDurable(durables, durable);
    const limit = Math.min(options.limit ?? 100, 1_000);
    const letters = await deadLetters.list({
      limit,
      ...(durable === undefined ? {} : { durable }),
      ...(tenant === undefined ? {} : { tenantId: tenant }),
      ...(cursor === undefined ? {} : { after: cursor }),
    });
    const next = letters.length < limit ? null : cursorOf(letters.at(-1));
    this.say(options, { letters, next }, () => lettersText(letters, next, new Date()));
    return exit.done;
  }
}

function cursorOf(letter: DeadLetter | undefined): string | null {
  return letter ? `${letter.eventId}/${letter.durable}` : null;
}

function cursor(given: string): { eventId: string; durable: string } {
  const [eventId = '', durable] = given.split('/');
  if (!isUuid(eventId) || !durable) throw wrongUsage(`--cursor '${given}' is none that a page ended with`);
  return { eventId, durable };
}
