import { Command } from 'nest-commander';
import { actor } from '../actor.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { chosen } from '../filtering.js';
import { actOnMany } from '../many.js';
import { knownDurable } from '../named.js';
import {
  type ActingOptions,
  acting,
  type CommonOptions,
  common,
  type FilterOptions,
  filter,
  type ManyActionOptions,
  many,
  Options,
} from '../options.js';
import { outcomeText, retry } from '../render/actions.js';
import type { Connected } from '../session.js';

type RetryOptions = CommonOptions & FilterOptions & ManyActionOptions & ActingOptions;

@Command({
  name: 'retry',
  arguments: '[id]',
  description: 'dead letters from attempt 1 again, and what waits for its next attempt now; one, or all that match',
  argsDescription: { id: 'an event id; with --durable, its delivery to that durable alone' },
})
@Options(filter, many, acting, common)
export class RetryCommand extends OutboxCommand<RetryOptions> {
  protected async answer([given]: readonly string[], options: RetryOptions): Promise<ExitCode> {
    const { id, filter } = chosen('retry', given, options);
    const connected = await this.session.open(options);
    const { inspector, durables } = connected;
    if (options.durable !== undefined) await knownDurable(durables, options.durable);
    // With a further filter it may not be meant.
    if (id !== undefined && options.durable !== undefined && Object.keys(filter).length === 2 && !options.dryRun)
      return this.one(connected, id, options.durable, options);
    return actOnMany(this.terminal, {
      verb: retry,
      what: 'deliveries',
      // An event that is named is not many.
      options: id === undefined ? options : { ...options, yes: true },
      by: actor(options),
      act: (bound) => inspector.retryMany(filter, bound),
    });
  }

  private async one({ inspector }: Connected, id: string, durable: string, options: RetryOptions): Promise<ExitCode> {
    const outcome = await inspector.retry(id, durable, actor(options));
    this.say(options, outcome, (outcome) => outcomeText(outcome, retry));
    return outcome.outcome === 'done' ? exit.done : exit.problem;
  }
}
