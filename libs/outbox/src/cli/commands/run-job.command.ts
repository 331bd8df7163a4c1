import { Command } from 'nest-commander';
import { actor } from '../actor.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type ActingOptions, acting, type CommonOptions, common, Options } from '../options.js';
import { knownJob } from '../pause-target.js';
import { at } from '../render/text.js';

type RunJobOptions = CommonOptions & ActingOptions;

@Command({
  name: 'run-job',
  arguments: '<name>',
  description: 'one more run of a periodic job now, under the same lock',
})
@Options(acting, common)
export class RunJobCommand extends OutboxCommand<RunJobOptions> {
  protected async answer([job = '']: readonly string[], options: RunJobOptions): Promise<ExitCode> {
    const { inspector } = await this.session.open(options);
    knownJob(
      job,
      (await inspector.periodic()).map((known) => known.job),
    );
    const slot = await inspector.runPeriodic(job, actor(options));
    this.say(
      options,
      { job, slot },
      () => `job '${job}' runs as slot ${at(slot)}; npx nestjs-outbox jobs shows how it ends`,
    );
    return exit.done;
  }
}
