import { Command } from 'nest-commander';
import { CliError } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { eventId } from '../named.js';
import { type CommonOptions, common, Options } from '../options.js';
import { eventText } from '../render/deliveries.js';

@Command({ name: 'show', arguments: '<id>', description: 'an event with its payload, deliveries and failed attempts' })
@Options(common)
export class ShowCommand extends OutboxCommand {
  protected async answer([given = '']: readonly string[], options: CommonOptions): Promise<ExitCode> {
    const id = eventId(given);
    const { inspector } = await this.session.open(options);
    const details = await inspector.get(id);
    if (!details)
      throw new CliError(exit.problem, `there is no event ${id}: it was never committed, or is forgotten since`);
    this.say(options, details, (details) => eventText(details, new Date()));
    return exit.done;
  }
}
