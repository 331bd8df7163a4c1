import { Command } from 'nest-commander';
import { actor } from '../actor.js';
import { CliError } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { declined, unaskable } from '../many.js';
import { knownDurable } from '../named.js';
import { type ActingOptions, acting, type CommonOptions, common, Options, yes } from '../options.js';
import { upTo } from '../render/text.js';

interface RetireOptions extends CommonOptions, ActingOptions {
  readonly yes?: boolean;
}

@Command({
  name: 'retire',
  arguments: '<durable>',
  description: 'ends a durable that has no code any more, and drops what waits for it',
})
@Options(yes, acting, common)
export class RetireCommand extends OutboxCommand<RetireOptions> {
  protected async answer([name = '']: readonly string[], options: RetireOptions): Promise<ExitCode> {
    const { inspector, durables } = await this.session.open(options);
    const durable = await knownDurable(durables, name);
    if (!durable) throw new CliError(exit.problem, `'${name}' is no durable`);
    const what = `'${name}' for good, and drop the ${upTo(durable.waiting)} deliveries that wait for it`;
    if (!options.yes && !this.terminal.interactive)
      throw unaskable(`retire would end ${what}`, 'give --yes if that is meant');
    if (!options.yes && !(await this.terminal.ask(`retire ${what}?`))) return declined(this.terminal);
    const came = await inspector.retire(name, actor(options));
    this.say(options, came, ({ dropped }) => `retired '${name}'; dropped ${dropped.toLocaleString('en')}`);
    return exit.done;
  }
}
