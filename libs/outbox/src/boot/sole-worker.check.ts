import { onPool } from './ask.js';
import { type BootCheck, works } from './boot-check.js';

/** memory() is for exactly one process; a worker beside it would take its rows and be refused the same. */
export const soleWorkerCheck: BootCheck = {
  name: 'transport',
  run: async (context) => {
    const { settings, database } = context;
    if (!works(settings)) return [];
    const rows = await onPool(context, (ask) => ask(database.workers.others(0)));
    const alone = settings.transport.capabilities.processes === 'one';
    const others = alone ? rows : rows.filter((row) => row.exclusive);
    return others.map((row) => ({
      check: 'transport',
      message: alone
        ? `transport ${settings.transport.name}() is for exactly one process, but worker ${row.id} (${row.app}) is alive on this schema; stop it, or use postgres()`
        : `worker ${row.id} (${row.app}) is alive on this schema and was started with memory(), which is for exactly one process; start both with postgres()`,
    }));
  },
};
