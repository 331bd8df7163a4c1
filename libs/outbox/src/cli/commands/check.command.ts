import { Command } from 'nest-commander';
import type { OutboxRole } from '../../index.js';
import { wrongUsage } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { targetOf } from '../config.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type GateReport, throughGate } from '../gate.js';
import { type CommonOptions, common, Options } from '../options.js';
import { paragraphs } from '../render/text.js';

interface CheckOptions extends CommonOptions {
  readonly role?: OutboxRole;
  /** `--no-database` makes it false. */
  readonly database?: boolean;
}

const roles: readonly OutboxRole[] = ['all', 'worker', 'publisher'];

@Command({
  name: 'check',
  arguments: '[module]',
  description: 'what the boot gate would say, for CI; nothing starts and nothing is changed',
  argsDescription: { module: 'the compiled root module, such as dist/app.module.js or dist/main.js#AppModule' },
})
@Options(
  [
    { flags: '--role <role>', description: "all, worker or publisher; default: the module's, or worker", parse: role },
    { flags: '--no-database', description: 'look at the module alone' },
  ],
  common,
)
export class CheckCommand extends OutboxCommand<CheckOptions> {
  protected async answer([given]: readonly string[], options: CheckOptions): Promise<ExitCode> {
    const target = await targetOf(options);
    const module = given ?? target.module;
    const wanted = options.database !== false && (target.url !== undefined || module === undefined);
    if (!wanted && module === undefined) throw wrongUsage('check what? Give a module, or a database');
    const report = await throughGate({
      ...{ module, role: options.role, schema: target.schema },
      connect: wanted ? () => this.session.connect(target) : undefined,
    });
    this.say(options, report, words);
    return codeOf(report);
  }
}

function role(given: string): OutboxRole {
  const found = roles.find((known) => known === given);
  if (!found) throw wrongUsage(`--role '${given}' is none of ${roles.join(', ')}`);
  return found;
}

function codeOf({ problems }: GateReport): ExitCode {
  if (problems.some(({ check }) => check === 'schema')) return exit.schema;
  if (problems.length > 0 && problems.every(({ check }) => check === 'privileges')) return exit.forbidden;
  return problems.length > 0 ? exit.problem : exit.done;
}

function words({ problems, warnings, checked }: GateReport): string {
  const lines = [
    ...problems.map(({ check, message }) => `problem  ${message} [${check}]`),
    ...warnings.map((message) => `warning  ${message}`),
  ];
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`;
  return paragraphs(lines.join('\n'), `${checked.join(' and ')}: ${problems.length === 0 ? 'in order' : count}`);
}
