import type { DataSource } from 'typeorm';
import type { BootCheck } from './boot-check.js';

/** Why the library cannot work with a DataSource, before it asks it anything. */
export function dataSourceProblem(dataSource: DataSource): string | undefined {
  const { type } = dataSource.options;
  if (type !== 'postgres') {
    return `the DataSource that OutboxModule was given is of type '${type}', and events are published in Postgres; give it one of type 'postgres' (with several DataSources name the right one: OutboxModule.forRoot({ dataSource: '…' }))`;
  }
  if (!dataSource.isInitialized) {
    return 'the DataSource that OutboxModule was given is not initialized; leave out manualInitialization, or call dataSource.initialize() before the application starts';
  }
  return undefined;
}

export const dataSourceCheck: BootCheck = {
  name: 'dataSource',
  run: ({ dataSource }) => {
    const message = dataSourceProblem(dataSource);
    return message === undefined ? [] : [{ check: 'dataSource', message }];
  },
};
