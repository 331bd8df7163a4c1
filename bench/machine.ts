import { availableParallelism, cpus } from 'node:os';
import { type BenchServer, withClient } from './server.js';

export interface Machine {
  readonly date: string;
  readonly cores: number;
  readonly processor: string;
  readonly node: string;
  readonly postgres: string;
  readonly server: 'throw-away, stock settings' | 'DATABASE_URL';
  readonly fsync: string;
}

/** What the figures were taken on. */
export function describeMachine(server: BenchServer): Promise<Machine> {
  return withClient(server.url, async (client) => {
    const setting = async (name: string): Promise<string> => {
      const { rows } = await client.query<{ value: string }>('SELECT current_setting($1) AS value', [name]);
      return rows[0]?.value ?? '';
    };
    return {
      date: new Date().toISOString().slice(0, 10),
      cores: availableParallelism(),
      processor: cpus()[0]?.model ?? 'unknown',
      node: process.versions.node,
      postgres: await setting('server_version'),
      server: server.throwaway ? 'throw-away, stock settings' : 'DATABASE_URL',
      fsync: await setting('fsync'),
    };
  });
}
