import { Command } from 'nest-commander';
import { isUuid } from '../../core/uuid.js';
import type { ExplainQuery, Explanation } from '../../index.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type CommonOptions, common, Options } from '../options.js';
import { plain } from '../render/text.js';

interface WhyOptions extends CommonOptions {
  readonly type?: string;
  readonly tenant?: string;
}

@Command({
  name: 'why',
  arguments: '<what>',
  description: 'why an event was not handled, durable by durable, and what to type next',
  argsDescription: { what: 'an event id, a unique key, or a subject; looked for in this order' },
})
@Options(
  [
    { flags: '--type <type>', description: 'of a unique key, or to narrow a subject' },
    { flags: '--tenant <id>', description: 'of this tenant' },
  ],
  common,
)
export class WhyCommand extends OutboxCommand<WhyOptions> {
  protected async answer([what = '']: readonly string[], options: WhyOptions): Promise<ExitCode> {
    const { inspector } = await this.session.open(options);
    const { type, tenant } = options;
    const narrow = { ...(type === undefined ? {} : { type }), ...(tenant === undefined ? {} : { tenantId: tenant }) };
    const queries: ExplainQuery[] = [
      { unique: what, ...narrow },
      { subject: what, ...narrow },
    ];
    if (isUuid(what)) queries.unshift({ id: what.toLowerCase() });
    let first: Explanation | undefined;
    for (const query of queries) {
      const explanation = await inspector.explain(query);
      first ??= explanation;
      if (!found(explanation)) continue;
      this.say(options, explanation, ({ text }) => plain(text));
      return exit.done;
    }
    // An id that is nowhere has more to say than a subject that is not.
    if (first) this.say(options, first, ({ text }) => (isUuid(what) ? plain(text) : nothing(what)));
    return exit.problem;
  }
}

function found({ events, findings }: Explanation): boolean {
  return events.length > 0 || findings.some(({ reason }) => reason !== 'not-found');
}

function nothing(what: string): string {
  return `no event has '${what}' as its id, unique key or subject: it was never committed, or is forgotten since`;
}
