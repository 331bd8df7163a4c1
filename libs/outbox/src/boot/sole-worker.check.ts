import type { BootProblem } from '../outbox.errors.js';
import { onPool } from './ask.js';
import { type BootCheck, type BootContext, works } from './boot-check.js';

/** memory() is for exactly one process; a worker beside it would take its rows and be refused the same. */
export const soleWorkerCheck: BootCheck = {
  name: 'transport',
  run: (context) => (works(context.settings) ? secondWorkers(context, 0) : []),
};

/**
 * Asked by the gate, so that a hopeless process takes no number; and once more with a number of its own: of two that
 * boot at the same time neither has seen the other before.
 */
export async function secondWorkers(context: BootContext, own: number): Promise<readonly BootProblem[]> {
  const { settings, database } = context;
  const rows = await onPool(context, (ask) => ask(database.workers.others(own)));
  const alone = settings.transport.capabilities.processes === 'one';
  const others = alone ? rows : rows.filter((row) => row.exclusive);
  return others.map((row) => ({
    check: 'transport',
    message: alone
      ? `transport ${settings.transport.name}() is for exactly one process, but worker ${row.id} (${row.app}) is alive on this schema; stop it, or use postgres()`
      : `worker ${row.id} (${row.app}) is alive on this schema and was started with memory(), which is for exactly one process; start both with postgres()`,
  }));
}
