import { inSchema } from '../wire/statement.js';
import { lockKeys } from './schema-name.js';
import { type SchemaVersion, schemaVersions } from './schema-versions.js';

/** How long one try waits for a lock: DDL that waits behind a long transaction makes every publish wait behind it. */
export const lockTimeout = '2s';

/** Two deploys that migrate at once: the second waits here and then finds nothing to do. */
export function schemaLock(schema: string): string {
  return `SELECT pg_advisory_xact_lock(${lockKeys(schema).schema}, 0)`;
}

/** The statements of one step, up or down; `after` is the version that it leads to. */
export function stepSql(schema: string, sql: string, after: SchemaVersion | undefined): string[] {
  const step = inSchema(schema, sql).replaceAll('{registration}', `${lockKeys(schema).registration}`);
  if (!after) return [step];
  const { version, minLibrary } = after;
  return [
    step,
    `UPDATE ${schema}.schema_version SET version = ${version}, min_library = ${minLibrary}, installed_at = now()`,
  ];
}

/** What `outboxSchema.up` does, as statements to be read and run by hand, in one transaction. */
export function upSql(schema: string, from: number, to: number): string[] {
  if (from >= to) return [];
  return [
    'BEGIN',
    `SET LOCAL lock_timeout = '${lockTimeout}'`,
    schemaLock(schema),
    ...(from === 0 ? [`CREATE SCHEMA IF NOT EXISTS ${schema}`] : []),
    ...schemaVersions.slice(from, to).flatMap((step) => stepSql(schema, step.up, step)),
    'COMMIT',
  ];
}
