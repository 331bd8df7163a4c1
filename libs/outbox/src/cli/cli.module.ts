import { Injectable, Module } from '@nestjs/common';
import { DiscoveryModule } from '@nestjs/core';
import { type CommandRunner, InjectCommander } from 'nest-commander';
import { CancelCommand } from './commands/cancel.command.js';
import { CheckCommand } from './commands/check.command.js';
import { DeadLettersCommand } from './commands/dead-letters.command.js';
import { DiscardCommand } from './commands/discard.command.js';
import { HealthCommand } from './commands/health.command.js';
import { JobsCommand } from './commands/jobs.command.js';
import { ListCommand } from './commands/list.command.js';
import { MigrateCommand } from './commands/migrate.command.js';
import { PauseCommand } from './commands/pause.command.js';
import { ResumeCommand } from './commands/resume.command.js';
import { RetireCommand } from './commands/retire.command.js';
import { RetryCommand } from './commands/retry.command.js';
import { RunJobCommand } from './commands/run-job.command.js';
import { SendCommand } from './commands/send.command.js';
import { ShowCommand } from './commands/show.command.js';
import { StatusCommand } from './commands/status.command.js';
import { WhyCommand } from './commands/why.command.js';
import { exitHelp } from './exit-codes.js';
import { Session } from './session.js';
import { Terminal } from './terminal.js';

type Commander = Parameters<CommandRunner['setCommand']>[0];

/** What `--help` says of the whole: nest-commander leaves the root command without a name. */
@Injectable()
class Root {
  constructor(@InjectCommander() commander: Commander) {
    commander
      .name('nestjs-outbox')
      .description('Why did that not run? The outbox, asked and mended from a terminal.')
      .addHelpText('after', exitHelp());
  }
}

/** In the order of `--help`: looking, mending one thing, mending many, setting up. */
const commands = [
  ...[WhyCommand, StatusCommand, ListCommand, ShowCommand, DeadLettersCommand, JobsCommand, HealthCommand],
  ...[RetryCommand, DiscardCommand, CancelCommand, SendCommand, PauseCommand, ResumeCommand, RetireCommand],
  ...[RunJobCommand, MigrateCommand, CheckCommand],
];

@Module({ imports: [DiscoveryModule], providers: [Root, Terminal, Session, ...commands] })
export class CliModule {}
