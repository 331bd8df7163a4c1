import { Command } from 'nest-commander';
import { actor } from '../actor.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type ActingOptions, acting, type CommonOptions, common, Options } from '../options.js';
import { known, nameOf, type TargetOptions, target, targetFrom } from '../pause-target.js';

type ResumeOptions = CommonOptions & ActingOptions & TargetOptions;

@Command({ name: 'resume', arguments: '[durable]', description: 'ends a pause' })
@Options(target, acting, common)
export class ResumeCommand extends OutboxCommand<ResumeOptions> {
  protected async answer([durable]: readonly string[], options: ResumeOptions): Promise<ExitCode> {
    const target = targetFrom('resume', durable, options);
    const connected = await this.session.open(options);
    const resumed = await connected.inspector.resume(target, actor(options));
    if (!resumed) await known(connected, target);
    this.say(options, { resumed }, () => (resumed ? `resumed ${nameOf(target)}` : `${nameOf(target)} was not paused`));
    return resumed ? exit.done : exit.problem;
  }
}
