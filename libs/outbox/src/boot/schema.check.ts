import { errorCode } from '../core/database-errors.js';
import type { BootProblem } from '../outbox.errors.js';
import { outboxSchema } from '../tables/schema/outbox-schema.js';
import { grantStatements, privilegesOf, quoted } from '../tables/schema/privileges.js';
import { libraryLevel, neededVersion } from '../tables/schema/schema-versions.js';
import { onPool } from './ask.js';
import { type BootCheck, type BootContext, works } from './boot-check.js';

/** Refuses a schema that is missing, too old for this library, or marked as too new for it; names the migration to add. */
export const schemaCheck: BootCheck = {
  name: 'schema',
  run: async (context) => {
    const { dataSource, settings, database } = context;
    const { schema } = settings;
    const refusal = settings.onStart === 'migrate' ? await migrate(context) : undefined;
    if (refusal) return problem(refusal);
    const [facts] = await onPool(context, (ask) => ask(database.facts.schema()));
    const named = schema === 'outbox' ? '' : `, schema: '${schema}'`;
    const migration = `add a TypeORM migration whose up() is: await outboxSchema.up(queryRunner, { to: ${neededVersion}${named} })`;
    if (!facts?.here)
      return problem(
        `the database has no outbox schema '${schema}'; ${migration} (or set schema: { onStart: 'migrate' } for tests and demos)`,
      );
    if (!facts.readable) return unreadable(context, facts.role);
    const [row] = await dataSource.query(`SELECT version, min_library FROM ${schema}.schema_version`);
    if (row.version < neededVersion)
      return problem(
        `the outbox schema '${schema}' is at version ${row.version}, this library needs ${neededVersion}; ${migration}`,
      );
    if (row.min_library > libraryLevel) {
      return problem(
        `the outbox schema '${schema}' (version ${row.version}) is marked as too new for this library; update nestjs-outbox in this app, or migrate down`,
      );
    }
    return [];
  },
};

function problem(message: string): BootProblem[] {
  return [{ check: 'schema', message }];
}

/** Why the schema could not be installed here, if it was for want of rights. */
async function migrate({ dataSource, settings }: BootContext): Promise<string | undefined> {
  try {
    await outboxSchema.up(dataSource, { schema: settings.schema });
    return undefined;
  } catch (error) {
    if (errorCode(error) !== '42501') throw error;
    return `schema.onStart is 'migrate', but the DataSource's role may not change the outbox schema '${settings.schema}' (${(error as Error).message}); install it in a migration that runs as its owner, and leave onStart at 'verify'`;
  }
}

/** Nothing at all was granted, most likely: so the whole of it is named, and not the first stone of many. */
function unreadable({ settings }: BootContext, role: string): BootProblem[] {
  const actor = works(settings) ? 'worker' : 'publisher';
  const [usage, version] = grantStatements(settings.schema, role, privilegesOf[actor]);
  const named = settings.schema === 'outbox' ? '' : `schema: '${settings.schema}', `;
  return [
    {
      check: 'privileges',
      message: `role ${quoted(role)} may not read the version of the outbox schema '${settings.schema}'; let its owner grant what a ${actor} needs, in a migration: for (const sql of outboxSchema.grants({ ${named}${actor}: '${role}' })) await queryRunner.query(sql) – it begins with ${usage}; ${version}`,
    },
  ];
}
