import type { BootProblem } from '../outbox.errors.js';
import { poolReserve } from '../tables/database.js';
import { type BootCheck, works } from './boot-check.js';
import { dataSourceProblem } from './data-source.check.js';

/** Handlers at once when nothing was said: half of what the pool can spare. */
export function defaultConcurrency(poolMax: number): number {
  return Math.max(1, Math.floor((poolMax - poolReserve) / 2));
}

export const poolCheck: BootCheck = {
  name: 'pool',
  run: ({ settings, database, dataSource, jobs }) => {
    if (!works(settings) || dataSourceProblem(dataSource)) return [];
    const { poolMax } = database;
    const { handlerConcurrency } = settings;
    const problem = (message: string): BootProblem[] => [{ check: 'pool', message }];
    if (poolMax < poolReserve + 1) {
      return problem(
        `the DataSource's pool has ${poolMax} connections; a process that handles events needs at least ${poolReserve + 1} (poolSize: ${poolReserve + 1} or more in the DataSource's options)`,
      );
    }
    if (handlerConcurrency !== undefined && handlerConcurrency > poolMax - poolReserve) {
      return problem(
        `handlers.concurrency is ${handlerConcurrency}, but the DataSource's pool of ${poolMax} leaves at most ${poolMax - poolReserve} to handlers; lower it, or raise poolSize to ${handlerConcurrency + poolReserve}`,
      );
    }
    return jobs.all
      .filter(({ perTenant = 0 }) => perTenant > poolMax - poolReserve)
      .flatMap(({ name, where, perTenant }) =>
        problem(
          `job '${name}' (${where}) runs ${perTenant} tenants at once, but the DataSource's pool of ${poolMax} leaves at most ${poolMax - poolReserve} to it; lower perTenant.concurrency, or raise poolSize`,
        ),
      );
  },
};
