import type { BootProblem } from '../outbox.errors.js';
import { type BootCheck, works } from './boot-check.js';
import { dataSourceProblem } from './data-source.check.js';

/** Connections of the pool that handlers must leave to everything else, or two of them could wait for each other for ever. */
const reserve = 2;

/** Handlers at once when nothing was said: half of what the pool can spare. */
export function defaultConcurrency(poolMax: number): number {
  return Math.max(1, Math.floor((poolMax - reserve) / 2));
}

export const poolCheck: BootCheck = {
  name: 'pool',
  run: ({ settings, database, dataSource, jobs }) => {
    if (!works(settings) || dataSourceProblem(dataSource)) return [];
    const { poolMax } = database;
    const { handlerConcurrency } = settings;
    const problem = (message: string): BootProblem[] => [{ check: 'pool', message }];
    if (poolMax < reserve + 1) {
      return problem(
        `the DataSource's pool has ${poolMax} connections; a process that handles events needs at least ${reserve + 1} (poolSize: ${reserve + 1} or more in the DataSource's options)`,
      );
    }
    if (handlerConcurrency !== undefined && handlerConcurrency > poolMax - reserve) {
      return problem(
        `handlers.concurrency is ${handlerConcurrency}, but the DataSource's pool of ${poolMax} leaves at most ${poolMax - reserve} to handlers; lower it, or raise poolSize to ${handlerConcurrency + reserve}`,
      );
    }
    return jobs.all
      .filter(({ perTenant = 0 }) => perTenant > poolMax - reserve)
      .flatMap(({ name, where, perTenant }) =>
        problem(
          `job '${name}' (${where}) runs ${perTenant} tenants at once, but the DataSource's pool of ${poolMax} leaves at most ${poolMax - reserve} to it; lower perTenant.concurrency, or raise poolSize`,
        ),
      );
  },
};
