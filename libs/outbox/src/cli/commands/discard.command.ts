import { Command } from 'nest-commander';
import { actor } from '../actor.js';
import { OutboxCommand } from '../command.js';
import type { ExitCode } from '../exit-codes.js';
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
import { discard } from '../render/actions.js';

type DiscardOptions = CommonOptions & FilterOptions & ManyActionOptions & ActingOptions;

@Command({
  name: 'discard',
  arguments: '[id]',
  description: 'closes dead letters without handling them; one event’s, or all that match',
  argsDescription: { id: 'an event id' },
})
@Options(filter, many, acting, common)
export class DiscardCommand extends OutboxCommand<DiscardOptions> {
  protected async answer([given]: readonly string[], options: DiscardOptions): Promise<ExitCode> {
    const { id, filter } = chosen('discard', given, options);
    const { inspector, durables } = await this.session.open(options);
    if (options.durable !== undefined) await knownDurable(durables, options.durable);
    return actOnMany(this.terminal, {
      verb: discard,
      what: 'dead letters',
      options: id === undefined ? options : { ...options, yes: true },
      by: actor(options),
      act: (bound) => inspector.discard(filter, bound),
    });
  }
}
