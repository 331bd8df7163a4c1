import type { DataSource } from 'typeorm';
import type { BootCheck } from './boot-check.js';

/** Two libraries that both decide which connection a repository uses would disagree, silently. */
export const repositoriesCheck: BootCheck = {
  name: 'repositories',
  run: ({ settings, dataSource }) =>
    settings.repositories === 'join' && ofTypeormTransactional(dataSource)
      ? [
          {
            check: 'repositories',
            message:
              "transactions.repositories is 'join', but typeorm-transactional manages this DataSource: repositories already take part in its transactions. Leave the option out ('guard'), or do not pass the DataSource to addTransactionalDataSource",
          },
        ]
      : [],
};

/** The mark that `addTransactionalDataSource` leaves. */
function ofTypeormTransactional(dataSource: DataSource): boolean {
  return Object.hasOwn(dataSource, '@transactional/data-source');
}
