import { Injectable } from '@nestjs/common';
import { CommandRunner } from 'nest-commander';
import { type ExitCode, exitHelp } from './exit-codes.js';
import type { CommonOptions } from './options.js';
import { Session } from './session.js';
import { Terminal } from './terminal.js';

type Commander = Parameters<CommandRunner['setCommand']>[0];

/** A command: it answers, and what it returns is what the process ends with. */
@Injectable()
export abstract class OutboxCommand<O extends CommonOptions = CommonOptions> extends CommandRunner {
  constructor(
    protected readonly terminal: Terminal,
    protected readonly session: Session,
  ) {
    super();
  }

  protected abstract answer(params: readonly string[], options: O): Promise<ExitCode>;

  /** A subcommand inherits nothing of commander's own settings: without this it would end the process by itself. */
  override setCommand(command: Commander): this {
    command
      .exitOverride()
      .allowExcessArguments(false)
      .showHelpAfterError('(--help says how)')
      .addHelpText('after', exitHelp());
    return super.setCommand(command);
  }

  override async run(params: string[], options: O): Promise<void> {
    this.terminal.end(await this.answer(params, options));
  }

  /** In JSON or in words, as was asked for. */
  protected say<T>({ json }: CommonOptions, value: T, words: (value: T) => string): void {
    if (json) this.terminal.json(value);
    else this.terminal.print(words(value));
  }
}
