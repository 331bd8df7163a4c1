import { describeWithNats } from '../../../../../test/support/nats.js';
import { createDatabase, natsUrl } from '../../../../../test/support/test-database.js';
import { describeQueue } from '../../testing/index.js';
import { jetstream } from './jetstream.transport.js';

describeWithNats('on a real nats-server', () => {
  describeQueue(
    'jetstream',
    (run) => jetstream({ servers: natsUrl(), stream: `contract-${run}`, prefix: `contract-${run}`, ackWait: '2s' }),
    { processes: 'many', firstDelivery: 'message' },
    { database: () => createDatabase() },
  );
});
