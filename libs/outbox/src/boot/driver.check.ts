import { UnsupportedDriverError } from '../outbox.errors.js';
import type { BootCheck } from './boot-check.js';

const oldestServer = 14;

/** The driver and the server: node-postgres in JavaScript from 8.21, and PostgreSQL from 14. */
export const driverCheck: BootCheck = {
  name: 'driver',
  run: async ({ dataSource, database }) => {
    const runner = dataSource.createQueryRunner('master');
    try {
      const client = await database.clientOf(runner);
      if (typeof client.getTransactionStatus !== 'function') {
        return [
          {
            check: 'driver',
            message:
              "the installed 'pg' is older than 8.21, which nestjs-outbox needs to prove its commits; npm install pg@^8.21",
          },
        ];
      }
      const [{ version }] = await runner.query(`SELECT current_setting('server_version_num')::int AS version`);
      if (version >= oldestServer * 10_000) return [];
      return [
        {
          check: 'driver',
          message: `the server is PostgreSQL ${Math.floor(version / 10_000)}; nestjs-outbox needs ${oldestServer} or later`,
        },
      ];
    } catch (error) {
      if (error instanceof UnsupportedDriverError) return [{ check: 'driver', message: error.message }];
      throw error;
    } finally {
      await runner.release();
    }
  },
};
