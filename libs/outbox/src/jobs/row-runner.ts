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
  const { job, tenantId, signal } = owner;
  const errors: RowFailedError[] = [];
  let index = 0;
  for await (const row of rows) {
    signal.throwIfAborted();
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
    } catch (error) {
      errors.push(new RowFailedError(job, index, row, error));
    }
    index += 1;
  }
  if (errors.length === 0) return;
  const told = errors.slice(0, namedInMessage).map((error) => messageOf(error));
  if (errors.length > told.length) told.push(`and ${errors.length - told.length} more`);
  throw new AggregateError(errors, `job '${job}': ${errors.length} of ${index} rows failed: ${told.join('; ')}`);
}
