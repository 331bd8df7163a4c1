import { createDatabase } from '../../../../../test/support/test-database.js';
import { describeQueue } from '../../testing/index.js';
import { memory, postgres } from './postgres.transport.js';

const setup = { database: () => createDatabase() };

describeQueue('postgres', postgres, { processes: 'many', firstDelivery: 'row' }, setup);
describeQueue('memory', memory, { processes: 'one', firstDelivery: 'row' }, setup);
