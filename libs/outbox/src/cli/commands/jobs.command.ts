import { Command } from 'nest-commander';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type CommonOptions, common, Options } from '../options.js';
import { jobsText } from '../render/jobs.js';

@Command({ name: 'jobs', description: 'the periodic jobs: when they ran, where they run, when they run next' })
@Options(common)
export class JobsCommand extends OutboxCommand {
  protected async answer(_: readonly string[], options: CommonOptions): Promise<ExitCode> {
    const { inspector } = await this.session.open(options);
    this.say(options, await inspector.periodic(), (jobs) => jobsText(jobs, new Date()));
    return exit.done;
  }
}
