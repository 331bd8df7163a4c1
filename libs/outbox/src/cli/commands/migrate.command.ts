import { Command } from 'nest-commander';
import { installedVersion, outboxSchema } from '../../tables/schema/outbox-schema.js';
import { upSql } from '../../tables/schema/schema-sql.js';
import { newestVersion } from '../../tables/schema/schema-versions.js';
import { wrongUsage } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { type Target, targetOf } from '../config.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type CommonOptions, common, count, Options } from '../options.js';

interface Roles {
  readonly publisher?: string;
  readonly worker?: string;
  readonly operator?: string;
  readonly retrier?: string;
}

interface MigrateOptions extends CommonOptions, Roles {
  readonly to?: number;
  readonly sql?: boolean;
  readonly from?: number;
}

@Command({ name: 'migrate', description: 'brings the outbox schema up to a version, or prints the SQL that does' })
@Options(
  [
    { flags: '--to <version>', description: 'default: the newest', parse: count('--to', 1) },
    { flags: '--sql', description: 'print the SQL, and change nothing' },
    {
      flags: '--from <version>',
      description: "with --sql: the version to begin at; default: the database's, or 0 when none is named",
      parse: count('--from', 0),
    },
    { flags: '--publisher <role>', description: 'also grant a role what a publisher needs' },
    { flags: '--worker <role>', description: 'also grant a role what a worker needs' },
    { flags: '--operator <role>', description: 'also let a role read everything' },
    { flags: '--retrier <role>', description: 'also let a role read everything, and act as this command line does' },
  ],
  common,
)
export class MigrateCommand extends OutboxCommand<MigrateOptions> {
  protected async answer(_: readonly string[], options: MigrateOptions): Promise<ExitCode> {
    const target = await targetOf(options);
    const schema = target.schema ?? 'outbox';
    const to = options.to ?? newestVersion;
    if (to > newestVersion) throw wrongUsage(`--to ${to}: the newest version that is known here is ${newestVersion}`);
    if (options.from !== undefined && options.from > to)
      throw wrongUsage(`--from ${options.from} is beyond version ${to}, where it is to end`);
    const grants = outboxSchema.grants({ ...rolesOf(options), schema, to });
    if (!options.sql) return this.apply(options, target, { schema, to, grants });
    const from = options.from ?? (await this.standing(target, schema));
    const statements = [...upSql(schema, from, to), ...grants];
    this.say(options, { schema, from, to, statements }, () => script(schema, from, to, statements));
    return exit.done;
  }

  private async apply(options: CommonOptions, target: Target, plan: Plan): Promise<ExitCode> {
    const { schema, to, grants } = plan;
    const dataSource = await this.session.connect(target);
    const from = await installedVersion(dataSource, schema);
    await outboxSchema.up(dataSource, { schema, to });
    for (const grant of grants) await dataSource.query(grant);
    const now = await installedVersion(dataSource, schema);
    this.say(options, { schema, from, to: now, grants }, () => applied(schema, from, now, grants.length));
    return exit.done;
  }

  private async standing(target: Target, schema: string): Promise<number> {
    return target.url === undefined ? 0 : installedVersion(await this.session.connect(target), schema);
  }
}

interface Plan {
  readonly schema: string;
  readonly to: number;
  readonly grants: readonly string[];
}

function rolesOf({ publisher, worker, operator, retrier }: Roles): Roles {
  return {
    ...(publisher === undefined ? {} : { publisher }),
    ...(worker === undefined ? {} : { worker }),
    ...(operator === undefined ? {} : { operator }),
    ...(retrier === undefined ? {} : { retrier }),
  };
}

function applied(schema: string, from: number, now: number, grants: number): string {
  const what = from === now ? `is at version ${now} already` : `was at version ${from}, and is at ${now} now`;
  return `schema '${schema}' ${what}${grants === 0 ? '' : `; ${grants} grants given`}`;
}

function script(schema: string, from: number, to: number, statements: readonly string[]): string {
  const head = `-- nestjs-outbox: schema '${schema}' from version ${from} to ${to}`;
  if (statements.length === 0) return `${head}: nothing to do`;
  return [head, ...statements.map((statement) => `${statement.trim().replace(/;$/, '')};`)].join('\n');
}
