import { setTimeout as pause } from 'node:timers/promises';
import type { EntityManager } from 'typeorm';
import { jittered } from '../core/backoff.js';
import { databaseTrouble } from '../core/database-errors.js';
import type { ThrottledLog } from '../core/throttled-log.js';
import type { Database } from '../tables/database.js';
import type { TenantClaimRow } from '../tables/job-tenants.table.js';
import type { Bound } from '../tables/wire/statement.js';
import type { CommitWatcher } from '../transactions/commit-watcher.js';
import { HandlerTransaction } from '../transactions/handler-transaction.js';
import type { TransactionFollower } from '../transactions/transaction-follower.js';

/** What the transactions of jobs stand on. */
export interface JobTransactionParts {
  readonly database: Database;
  readonly follower: TransactionFollower;
  readonly commits: CommitWatcher;
  readonly throttled: ThrottledLog;
}

/** One piece of a job's work in a transaction of its own. */
export interface Piece {
  /** For people: `job billing.renew, tenant acme`. */
  readonly name: string;
  readonly tenantId: string | null;
  /** Sent with BEGIN; answers whether the piece is ours. */
  readonly claim: Bound<TenantClaimRow>;
  /** Whether it may be tried again when its COMMIT was not answered: its claim leaves a mark, or it only reads. */
  readonly repeatable: boolean;
  /** What to record when the work throws: behind ROLLBACK TO, and behind ROLLBACK. `undefined`: nothing. */
  failed(error: unknown): { readonly inside: Bound; readonly after: Bound } | undefined;
  work(manager: EntityManager): unknown;
}

/** Tries at one piece when the database was in the way (a conflict, a busy claim, a lost connection) before it has failed. */
const tries = 5;

/** Why a piece may be tried again. What its work throws of others' connections (`ECONNREFUSED`) is no such thing. */
class InTheWay {
  constructor(readonly error: unknown) {}
}

/**
 * Runs a piece in a transaction with the proof of its commit, as a handler is. `false`: it was claimed before. Throws what
 * the work threw, or why it could not commit.
 */
export async function runPiece(parts: JobTransactionParts, piece: Piece, signal: AbortSignal): Promise<boolean> {
  for (let n = 1; ; n++) {
    const last = n >= tries;
    try {
      return await once(parts, piece, last);
    } catch (error) {
      if (!(error instanceof InTheWay)) throw error;
      if (last) throw error.error;
      await pause(jittered(100 * 2 ** n));
      // The slot may be somebody else's by now, and over: its marks are gone, and the piece would be done once more.
      if (signal.aborted) throw error.error;
    }
  }
}

async function once(parts: JobTransactionParts, piece: Piece, last: boolean): Promise<boolean> {
  const transaction = await aside(HandlerTransaction.open(parts.database, piece.name));
  let clean = false;
  try {
    const {
      rows: [row],
    } = await aside(transaction.begin(piece.claim));
    if (!row?.claimed) {
      await aside(transaction.commitClaim());
      clean = true;
      if (typeof row?.failed === 'string') throw new Error(row.failed.split('\n')[0]);
      return false;
    }
    const failure = (await workOf(parts, piece, transaction)) ?? (await commitOf(piece, transaction));
    if (failure) {
      const again = !last && ['conflict', 'busy'].includes(databaseTrouble(failure.error));
      clean = await record(parts, transaction, failure, again ? undefined : piece.failed(failure.error));
      throw again ? new InTheWay(failure.error) : lostOf(piece, transaction, failure);
    }
    clean = true;
    parts.commits.committed(transaction.scope.runner);
    await tell(parts, transaction, 'AfterTransactionCommit');
    return true;
  } finally {
    await transaction.release(clean);
  }
}

/** A message of ours, none of which is the work's: whatever of the database goes wrong with it was in the way. */
async function aside<T>(message: Promise<T>): Promise<T> {
  try {
    return await message;
  } catch (error) {
    throw databaseTrouble(error) === 'other' ? error : new InTheWay(error);
  }
}

interface Failure {
  readonly error: unknown;
  /** What is left of the transaction: its savepoint; nothing; or something that was not awaited and may still send. */
  readonly left: 'savepoint' | 'nothing' | 'work';
  /** The answer to COMMIT is lost, and no mark tells whether it is done. */
  readonly mayBeDone?: boolean;
}

/** After the attempt to record: by then a connection that is gone is known to be. */
function lostOf(piece: Piece, { connectionLost }: HandlerTransaction, { error, mayBeDone }: Failure): unknown {
  if (mayBeDone || !connectionLost) return error;
  const why = `${piece.name}: its connection was lost: ${connectionLost.message}`;
  return new InTheWay(new Error(why, { cause: error }));
}

async function workOf(
  parts: JobTransactionParts,
  piece: Piece,
  transaction: HandlerTransaction,
): Promise<Failure | undefined> {
  let thrown: Failure | undefined;
  try {
    await transaction.enclose(parts.follower, piece.tenantId, async () => piece.work(transaction.manager));
  } catch (error) {
    thrown = { error, left: 'savepoint' };
  }
  try {
    transaction.seal();
    return thrown;
  } catch (error) {
    // The work's own error says more than what it left behind.
    return { error: thrown?.error ?? error, left: 'work' };
  }
}

async function commitOf(piece: Piece, transaction: HandlerTransaction): Promise<Failure | undefined> {
  try {
    await transaction.commit();
    return undefined;
  } catch (error) {
    if (piece.repeatable || databaseTrouble(error) !== 'outage') return { error, left: 'nothing' };
    const unknown = new Error(`${piece.name}: the answer to its COMMIT is lost, it may be done`, { cause: error });
    return { error: unknown, left: 'nothing', mayBeDone: true };
  }
}

/** Whether the connection may go back to the pool. Not being able to record is no error of its own: the work's is thrown. */
async function record(
  parts: JobTransactionParts,
  transaction: HandlerTransaction,
  { left }: Failure,
  records: ReturnType<Piece['failed']>,
): Promise<boolean> {
  try {
    if (records && left === 'savepoint') {
      try {
        await transaction.recordInside(records.inside);
        return true;
      } catch {
        // The savepoint is gone, or the connection; the next line finds out.
      }
    }
    await transaction.recordAfter(records?.after ?? parts.database.nothing());
    return left !== 'work';
  } catch {
    return false;
  } finally {
    await tell(parts, transaction, 'AfterTransactionRollback');
  }
}

async function tell(
  { throttled }: JobTransactionParts,
  transaction: HandlerTransaction,
  event: 'AfterTransactionCommit' | 'AfterTransactionRollback',
): Promise<void> {
  const error = await transaction.announceEnd(event);
  if (error !== undefined)
    throttled.warn('subscriber', `a TypeORM subscriber failed after a job's transaction: ${String(error)}`);
}
