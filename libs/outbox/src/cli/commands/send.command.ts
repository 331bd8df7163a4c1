import { Command } from 'nest-commander';
import { actor } from '../actor.js';
import { wrongUsage } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { eventId, knownDurable } from '../named.js';
import { type ActingOptions, acting, type CommonOptions, common, Options } from '../options.js';
import { outcomeText, send } from '../render/actions.js';

interface SendCommandOptions extends CommonOptions, ActingOptions {
  readonly to?: string;
  readonly force?: boolean;
}

@Command({
  name: 'send',
  arguments: '<id>',
  description: 'delivers an event to one durable, also to one that was registered later',
  argsDescription: { id: 'an event id' },
})
@Options(
  [
    { flags: '--to <durable>', description: 'the durable (needed)' },
    { flags: '--force', description: 'once more, when it has handled, discarded or cancelled it' },
  ],
  acting,
  common,
)
export class SendCommand extends OutboxCommand<SendCommandOptions> {
  protected async answer([given = '']: readonly string[], options: SendCommandOptions): Promise<ExitCode> {
    const id = eventId(given);
    const { to, force } = options;
    if (to === undefined) throw wrongUsage('send needs --to <durable>');
    const { inspector, durables } = await this.session.open(options);
    await knownDurable(durables, to);
    const outcome = await inspector.send(id, { ...actor(options), to, force: force === true });
    this.say(options, outcome, (outcome) => outcomeText(outcome, send));
    return outcome.outcome === 'done' ? exit.done : exit.problem;
  }
}
