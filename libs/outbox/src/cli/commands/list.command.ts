import { Command } from 'nest-commander';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { filterOf } from '../filtering.js';
import { eventId, knownDurable } from '../named.js';
import { type CommonOptions, common, type FilterOptions, filter, limit, Options } from '../options.js';
import { pageText } from '../render/deliveries.js';

interface ListOptions extends CommonOptions, FilterOptions {
  readonly event?: string;
  readonly limit?: number;
  readonly cursor?: string;
}

@Command({ name: 'list', description: 'deliveries that match, newest event first; all but completed without --state' })
@Options(
  filter,
  { flags: '--event <id>', description: 'of this event', parse: eventId },
  limit,
  { flags: '--cursor <cursor>', description: 'the next page: what the one before says at its end' },
  common,
)
export class ListCommand extends OutboxCommand<ListOptions> {
  protected async answer(_: readonly string[], options: ListOptions): Promise<ExitCode> {
    const { inspector, durables } = await this.session.open(options);
    const { limit, cursor, durable } = options;
    const page = { ...(limit === undefined ? {} : { limit }), ...(cursor === undefined ? {} : { cursor }) };
    const found = await inspector.list(filterOf(options, options.event), page);
    if (found.deliveries.length === 0 && durable !== undefined) await knownDurable(durables, durable);
    this.say(options, found, (found) => pageText(found, new Date()));
    return found.deliveries.length > 0 ? exit.done : exit.problem;
  }
}
