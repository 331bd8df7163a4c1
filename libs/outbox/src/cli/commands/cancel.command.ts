import { Command } from 'nest-commander';
import type { Cancelled, CancelQuery } from '../../index.js';
import { actor } from '../actor.js';
import { wrongUsage } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { eventId } from '../named.js';
import { type ActingOptions, acting, type CommonOptions, common, Options } from '../options.js';

interface CancelCommandOptions extends CommonOptions, ActingOptions {
  readonly event?: string;
  readonly unique?: string;
  readonly subject?: string;
  readonly tenant?: string;
  readonly abort?: boolean;
}

@Command({
  name: 'cancel',
  arguments: '[id]',
  description: 'keeps an event from every handler that has not begun with it',
  argsDescription: { id: 'an event id; or --event with --unique or --subject' },
})
@Options(
  [
    { flags: '--event <type>', description: 'the type, with --unique or --subject' },
    { flags: '--unique <key>', description: 'the event of this unique key' },
    { flags: '--subject <subject>', description: 'all events of the type with this subject' },
    { flags: '--tenant <id>', description: 'of this tenant' },
    { flags: '--abort', description: 'also abort the signal of handlers that run it now' },
  ],
  acting,
  common,
)
export class CancelCommand extends OutboxCommand<CancelCommandOptions> {
  protected async answer([id]: readonly string[], options: CancelCommandOptions): Promise<ExitCode> {
    const query = queryOf(id, options);
    const { inspector } = await this.session.open(options);
    const came = await inspector.cancel(query, { ...actor(options), abort: options.abort === true });
    this.say(options, came, words);
    return came.cancelled > 0 ? exit.done : exit.problem;
  }
}

function queryOf(id: string | undefined, { event, unique, subject, tenant }: CancelCommandOptions): CancelQuery {
  const ways = [id, unique, subject].filter((way) => way !== undefined).length;
  if (ways !== 1 || (id === undefined) !== (event !== undefined))
    throw wrongUsage('cancel what? Give an event id, or --event with either --unique or --subject');
  if (id !== undefined) return { id: eventId(id) };
  const of = { event: event ?? '', ...(tenant === undefined ? {} : { tenantId: tenant }) };
  return unique === undefined ? { ...of, subject: subject ?? '' } : { ...of, unique };
}

function words({ cancelled, tooLate }: Cancelled): string {
  if (cancelled + tooLate === 0) return 'nothing to cancel: no such event waits';
  const late = tooLate === 0 ? '' : `; too late for ${tooLate}: a handler had begun, or has ended`;
  return `cancelled ${cancelled}${late}`;
}
