import { setTimeout as pause } from 'node:timers/promises';
import type { DataSource, QueryRunner } from 'typeorm';
import { databaseTrouble } from '../../core/database-errors.js';
import { SchemaError, SchemaLockedError } from '../../outbox.errors.js';
import { type GrantOptions, grants } from './grants.js';
import { schemaNameProblem } from './schema-name.js';
import { lockTimeout, schemaLock, stepSql } from './schema-sql.js';
import { newestVersion, type SchemaVersion, schemaVersions } from './schema-versions.js';

export interface SchemaOptions {
  /** The version to end at. Default: the newest for `up`, 0 (nothing left) for `down`. */
  readonly to?: number;
  /** The schema's name. Default `outbox`. */
  readonly schema?: string;
}

const tries = 10;

/**
 * The schema of the outbox, in numbered steps that a migration of the application calls:
 *
 *     await outboxSchema.up(queryRunner, { to: 1 });
 *
 * Takes a QueryRunner (inside its transaction, if it has one) or a DataSource. Throws `SchemaLockedError` when the
 * tables stay locked, `SchemaError` when the request makes no sense; nothing is changed then.
 */
export const outboxSchema = {
  up: (target: DataSource | QueryRunner, options: SchemaOptions = {}): Promise<void> => move(target, options, 'up'),
  down: (target: DataSource | QueryRunner, options: SchemaOptions = {}): Promise<void> => move(target, options, 'down'),
  /** GRANT statements for roles that own nothing: `for (const sql of outboxSchema.grants({ worker: 'app' })) await queryRunner.query(sql);` */
  grants: (options: GrantOptions): string[] => grants(options),
} as const;

async function move(target: DataSource | QueryRunner, options: SchemaOptions, direction: 'up' | 'down'): Promise<void> {
  const schema = options.schema ?? 'outbox';
  const to = options.to ?? (direction === 'up' ? newestVersion : 0);
  const problem = schemaNameProblem(schema);
  if (problem) throw new SchemaError(problem);
  if (!Number.isInteger(to) || to < 0 || to > newestVersion) {
    throw new SchemaError(`there is no outbox schema version ${to}; this library knows 0 (none) to ${newestVersion}`);
  }
  if (isRunner(target)) return retried(to, () => inTransaction(target, () => steps(target, schema, to, direction)));
  const runner = target.createQueryRunner('master');
  try {
    await retried(to, () => inTransaction(runner, () => steps(runner, schema, to, direction)));
  } finally {
    await runner.release();
  }
}

async function retried(to: number, attempt: () => Promise<void>): Promise<void> {
  for (let n = 1; ; n++) {
    try {
      return await attempt();
    } catch (error) {
      if (databaseTrouble(error) !== 'busy') throw error;
      if (n === tries) throw new SchemaLockedError(to, tries, { cause: error });
      await pause(200 * n);
    }
  }
}

/** A transaction, or a savepoint inside the caller's, so that a try that met a lock can be undone and repeated. */
async function inTransaction(runner: QueryRunner, work: () => Promise<void>): Promise<void> {
  await runner.startTransaction();
  try {
    await work();
    await runner.commitTransaction();
  } catch (error) {
    await runner.rollbackTransaction();
    throw error;
  }
}

async function steps(runner: QueryRunner, schema: string, to: number, direction: 'up' | 'down'): Promise<void> {
  const [before] = await runner.query(`SELECT current_setting('lock_timeout') AS value`);
  await runner.query(`SELECT set_config('lock_timeout', '${lockTimeout}', true)`);
  await runner.query(schemaLock(schema));
  const from = await installedVersion(runner, schema);
  if (direction === 'up') {
    if (from === 0 && to > 0) await runner.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
    for (const step of schemaVersions.slice(from, to)) await apply(runner, schema, step.up, step);
  } else {
    for (const step of schemaVersions.slice(to, from).toReversed()) {
      await apply(runner, schema, step.down, schemaVersions[step.version - 2]);
    }
    if (to === 0) await dropIfEmpty(runner, schema);
  }
  await runner.query(`SELECT set_config('lock_timeout', $1, true)`, [before.value]);
}

async function apply(
  runner: QueryRunner,
  schema: string,
  sql: string,
  after: SchemaVersion | undefined,
): Promise<void> {
  for (const statement of stepSql(schema, sql, after)) await runner.query(statement);
}

interface Asked {
  query(sql: string, parameters?: string[]): Promise<{ here: boolean; version: number }[]>;
}

/** The version that is installed; 0 for none. */
export async function installedVersion(runner: Asked, schema: string): Promise<number> {
  // Not to_regclass: it answers from a cache that may be older than the advisory lock for which this has just waited.
  const [found] = await runner.query(
    `SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'schema_version') AS here`,
    [schema],
  );
  if (!found?.here) return 0;
  const [row] = await runner.query(`SELECT version FROM ${schema}.schema_version`);
  return row?.version ?? 0;
}

/** The schema goes when nothing of anybody else is in it. */
async function dropIfEmpty(runner: QueryRunner, schema: string): Promise<void> {
  await runner.query(
    `DO $$ BEGIN DROP SCHEMA IF EXISTS ${schema}; EXCEPTION WHEN dependent_objects_still_exist THEN NULL; END $$`,
  );
}

function isRunner(target: DataSource | QueryRunner): target is QueryRunner {
  return 'startTransaction' in target;
}
