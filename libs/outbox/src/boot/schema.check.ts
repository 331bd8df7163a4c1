import type { BootProblem } from '../outbox.errors.js';
import { outboxSchema } from '../tables/schema/outbox-schema.js';
import { libraryLevel, neededVersion } from '../tables/schema/schema-versions.js';
import type { BootCheck, BootContext } from './boot-check.js';

/** Refuses a schema that is missing, too old for this library, or marked as too new for it; names the migration to add. */
export const schemaCheck: BootCheck = {
  name: 'schema',
  asksDatabase: true,
  run: async ({ dataSource, settings }: BootContext) => {
    if (settings.onStart === 'migrate') await outboxSchema.up(dataSource, { schema: settings.schema });
    const problem = (message: string): BootProblem[] => [{ check: 'schema', message }];
    const { schema } = settings;
    const named = schema === 'outbox' ? '' : `, schema: '${schema}'`;
    const migration = `add a TypeORM migration whose up() is: await outboxSchema.up(queryRunner, { to: ${neededVersion}${named} })`;
    const [{ here }] = await dataSource.query(`SELECT to_regclass('${schema}.schema_version') IS NOT NULL AS here`);
    if (!here)
      return problem(
        `the database has no outbox schema '${schema}'; ${migration} (or set schema: { onStart: 'migrate' } for tests and demos)`,
      );
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
