import type { EntityManager } from 'typeorm';
import { messageOf, RowFailedError } from '../outbox.job-errors.js';
import type { RowContext } from './job-context.js';
import { type JobTransactionParts, runPiece } from './job-transaction.js';

/** Whose rows they are. */
export interface RowOwner {
  readonly job: string;
  readonly tenantId: string | null;
  readonly signal: AbortSignal;
}

const namedInMessage = 50;

/** `ctx.each`: one transaction a row, one after the other; what fails is collected. */
export async function runRows<T>(
  parts: JobTransactionParts,
  owner: RowOwner,
  rows: Iterable<T> | AsyncIterable<T>,
  work: (row: T, context: RowContext) => unknown,
): Promise<void> {
  const { signal } = owner;
  const errors: RowFailedError[] = [];
  let index = 0;
  try {
    for await (const row of rows) {
      signal.throwIfAborted();
      const error = await runRow(parts, owner, index, row, work);
      if (error) errors.push(error);
      index += 1;
    }
  } catch (ended) {
    // The abort, or what the rows come from: what failed before must not be lost over it.
    throw errors.length > 0 ? joined(owner, errors, index, ended) : ended;
  }
  if (errors.length > 0) throw joined(owner, errors, index);
}

async function runRow<T>(
  parts: JobTransactionParts,
  { job, tenantId, signal }: RowOwner,
  index: number,
  row: T,
  work: (row: T, context: RowContext) => unknown,
): Promise<RowFailedError | undefined> {
  const piece = {
    name: `job ${job}, row ${index}`,
    tenantId,
    claim: parts.database.jobTenants.enter(tenantId ?? ''),
    repeatable: false,
    work: (manager: EntityManager) => work(row, { manager, tenantId, signal }),
    failed: () => undefined,
  };
  try {
    await runPiece(parts, piece, signal);
    return undefined;
  } catch (error) {
    return new RowFailedError(job, index, row, error);
  }
}

function joined({ job }: RowOwner, errors: readonly RowFailedError[], count: number, ended?: unknown): AggregateError {
  const told = errors.slice(0, namedInMessage).map((error) => messageOf(error));
  if (errors.length > told.length) told.push(`and ${errors.length - told.length} more`);
  if (ended !== undefined) told.push(`ended after row ${count - 1}: ${messageOf(ended)}`);
  const message = `job '${job}': ${errors.length} of ${count} rows failed: ${told.join('; ')}`;
  return new AggregateError(errors, message, { cause: ended });
}
