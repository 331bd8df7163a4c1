import { createDatabase } from '../../../../../test/support/test-database.js';
import { describeTransport } from '../../testing/index.js';
import { memory, postgres } from './postgres.transport.js';

describeTransport(
  'postgres',
  postgres,
  { processes: 'many', firstDelivery: 'row' },
  { database: () => createDatabase() },
);
describeTransport('memory', memory, { processes: 'one', firstDelivery: 'row' }, { database: () => createDatabase() });
