import { createHash } from 'node:crypto';

const plainName = /^[a-z_][a-z0-9_]{0,39}$/;

/** Why a schema name cannot be used, or `undefined`. Plain lower-case names need no quoting anywhere. */
export function schemaNameProblem(name: unknown): string | undefined {
  if (typeof name !== 'string' || !plainName.test(name)) {
    return `schema name ${JSON.stringify(name)} is not a plain lower-case identifier of at most 40 characters; use one such as 'outbox'`;
  }
  if (name === 'public' || name.startsWith('pg_') || name === 'information_schema') {
    return `schema '${name}' belongs to others; give the outbox one of its own, such as 'outbox'`;
  }
  return undefined;
}

/** Advisory lock keys, apart for each schema: two outboxes in one database must not wait for each other. */
export interface LockKeys {
  /** Shared by fan-out, exclusive for registration; (key, 0). */
  readonly registration: number;
  /** (key, worker number), held for as long as the worker lives. */
  readonly worker: number;
  /** Held while the schema changes; (key, 0). */
  readonly schema: number;
  /** (key, hash of a job's name), held while the job runs. */
  readonly job: number;
}

export function lockKeys(schema: string): LockKeys {
  const key = (part: string): number => hash32(`nestjs-outbox:${part}:${schema}`);
  return { registration: key('registration'), worker: key('worker'), schema: key('schema'), job: key('job') };
}

/** The second half of a job's advisory lock. Two names with one hash would wait for each other; the boot gate looks. */
export function jobLockKey(job: string): number {
  return hash32(job);
}

function hash32(text: string): number {
  return createHash('sha256').update(text).digest().readInt32BE(0);
}
