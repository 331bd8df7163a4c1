import { command } from './statement.js';

/**
 * Transaction control as prepared statements, so that it travels in one message with what it frames. The isolation is
 * said out loud: a role or database default of REPEATABLE READ would turn "taken already" into error 40001.
 */
export const begin = command('begin', 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE');
/** Several statements see one moment. */
export const snapshot = command('snapshot', 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
export const commit = command('commit', 'COMMIT');
export const rollback = command('rollback', 'ROLLBACK');

/**
 * The savepoint under the handler's work. It bears the name that TypeORM gives to the one below depth 1000, so that a
 * stray `commitTransaction()` of the handler releases this savepoint instead of sending COMMIT; see `handler-transaction.ts`.
 */
export const handlerDepth = 1000;
const name = `typeorm_${handlerDepth - 1}`;
export const savepoint = command('savepoint', `SAVEPOINT ${name}`);
export const rollbackToSavepoint = command('rollback_to', `ROLLBACK TO SAVEPOINT ${name}`);
/** Fails with 25P02 after a swallowed SQL error, with 25P01 or 3B001 when the handler ended the transaction itself. */
export const releaseSavepoint = command('release', `RELEASE SAVEPOINT ${name}`);
