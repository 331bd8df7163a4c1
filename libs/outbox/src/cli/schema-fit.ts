import type { Database } from '../tables/database.js';
import { libraryLevel, neededVersion } from '../tables/schema/schema-versions.js';
import { CliError } from './cli-error.js';
import { exit } from './exit-codes.js';

/** Throws what keeps this version from working with the schema; the boot gate says the same to applications. */
export async function fitSchema(database: Database): Promise<void> {
  const { schema } = database;
  const [{ rows: facts }] = await database.onPool(database.facts.schema());
  const [fact] = facts;
  if (!fact?.here)
    throw new CliError(
      exit.schema,
      `the database has no outbox schema '${schema}': is it the right database? If so, npx nestjs-outbox migrate installs it; --schema names another`,
    );
  if (!fact.readable)
    throw new CliError(
      exit.forbidden,
      `role "${fact.role}" may not read the outbox schema '${schema}': npx nestjs-outbox migrate --operator ${fact.role}, as its owner, lets it read, --retrier also act`,
    );
  const [row] = await database.dataSource.query(`SELECT version, min_library FROM ${schema}.schema_version`);
  if (row.version < neededVersion)
    throw new CliError(
      exit.schema,
      `the outbox schema '${schema}' is at version ${row.version}, and this command line needs ${neededVersion}: npx nestjs-outbox migrate`,
    );
  if (row.min_library > libraryLevel)
    throw new CliError(
      exit.schema,
      `the outbox schema '${schema}' (version ${row.version}) is too new for this command line: update nestjs-outbox`,
    );
}
