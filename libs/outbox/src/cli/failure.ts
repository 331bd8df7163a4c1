import { QueryRunnerAlreadyReleasedError } from 'typeorm';
import { databaseTrouble, errorCode } from '../core/database-errors.js';
import { CliError } from './cli-error.js';
import { type ExitCode, exit } from './exit-codes.js';

/** How a command ended that did not end well. */
export interface Failure {
  readonly exitCode: ExitCode;
  /** Empty when it has been said already. */
  readonly message: string;
}

/** Codes for which Postgres refuses a login, or has no such database. */
const refused = new Set(['28P01', '28000', '3D000']);
/** A table, function, schema or column that is not there: the schema was changed by hand, or meanwhile. */
const unfit = new Set(['42P01', '42883', '3F000', '42703']);

/** What was typed says nothing that there could be. */
const misused = new Set(['OUTBOX_INVALID_QUERY', 'OUTBOX_INVALID_CANCEL']);

/** Any error as an exit code and words, without a stack. */
export function failureOf(error: unknown): Failure {
  if (error instanceof CliError) return { exitCode: error.exitCode, message: error.message };
  const code = errorCode(error);
  // Commander has said it already, and shown how it is used.
  if (code?.startsWith('commander.')) {
    const { exitCode } = error as { exitCode?: number };
    return { exitCode: exitCode === 0 ? exit.done : exit.usage, message: '' };
  }
  if (code !== undefined && misused.has(code)) return { exitCode: exit.usage, message: textOf(error) };
  if (code?.startsWith('OUTBOX_')) return { exitCode: exit.problem, message: textOf(error) };
  if (code === '42501') return { exitCode: exit.forbidden, message: forbidden(error) };
  if (code !== undefined && unfit.has(code))
    return {
      exitCode: exit.schema,
      message: `the outbox schema does not fit: ${textOf(error)}; see npx nestjs-outbox check`,
    };
  // Of `migrate`, which is the only one that names a role.
  if (code === '42704') return { exitCode: exit.problem, message: `${textOf(error)}: create it first` };
  // TypeORM takes a runner back whose connection has ended; here nobody else does, so it can mean nothing else.
  if (error instanceof QueryRunnerAlreadyReleasedError)
    return { exitCode: exit.unreachable, message: 'no database: the connection has ended' };
  if (isUnreachable(error)) return { exitCode: exit.unreachable, message: `no database: ${textOf(error)}` };
  return { exitCode: exit.unexpected, message: `unexpected: ${textOf(error)}` };
}

export function isUnreachable(error: unknown): boolean {
  const code = errorCode(error);
  return databaseTrouble(error) === 'outage' || (code !== undefined && refused.has(code));
}

/** A refused connection to a name with two addresses is an AggregateError, which has a code and no message. */
export function textOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message || (errorCode(error) ?? 'an error without a message');
}

function forbidden(error: unknown): string {
  return `${textOf(error)}: the role may not do this. Who reads needs outboxSchema.grants({ operator }), who acts outboxSchema.grants({ retrier }): npx nestjs-outbox migrate --retrier <role>, as the owner of the schema`;
}
