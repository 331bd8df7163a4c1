import { Command } from 'nest-commander';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type CommonOptions, common, Options } from '../options.js';
import { overviewText } from '../render/overview.js';

interface StatusOptions extends CommonOptions {
  readonly type?: string;
}

@Command({ name: 'status', description: 'what waits, runs and fails, durable by durable; workers and pauses' })
@Options([{ flags: '--type <type>', description: 'only events of this type or pattern' }], common)
export class StatusCommand extends OutboxCommand<StatusOptions> {
  protected async answer(_: readonly string[], options: StatusOptions): Promise<ExitCode> {
    const { inspector } = await this.session.open(options);
    const overview = await inspector.overview(options.type === undefined ? {} : { type: options.type });
    this.say(options, overview, overviewText);
    return exit.done;
  }
}
