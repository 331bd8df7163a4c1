import { Command } from 'nest-commander';
import { CliError } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type CommonOptions, common, Options } from '../options.js';
import { healthText, unread } from '../render/health.js';

interface HealthOptions extends CommonOptions {
  readonly strict?: boolean;
}

@Command({ name: 'health', description: 'what is wrong with the outbox, and the remedies; ends with 1 when it is red' })
@Options([{ flags: '--strict', description: 'end with 1 when it is yellow, too' }], common)
export class HealthCommand extends OutboxCommand<HealthOptions> {
  protected async answer(_: readonly string[], options: HealthOptions): Promise<ExitCode> {
    const { health } = await this.session.open(options);
    const report = await health.check();
    const hidden = unread(report);
    // What cannot be read is red when it failed. Where the role is not meant to read it, green would be a lie.
    if (report.status !== 'red' && hidden.length > 0)
      throw new CliError(
        exit.forbidden,
        `this role may not read ${hidden.join(', ')}: npx nestjs-outbox migrate --operator <role>, as the owner of the schema`,
      );
    this.say(options, report, healthText);
    return report.status === 'red' || (options.strict && report.status === 'yellow') ? exit.problem : exit.done;
  }
}
