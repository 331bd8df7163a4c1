import { describeWithNats } from '../../../../../test/support/nats.js';
import { createDatabase, natsUrl } from '../../../../../test/support/test-database.js';
import { describeTransport } from '../../testing/index.js';
import { jetstream } from './jetstream.transport.js';

describeWithNats('on a real nats-server', () => {
  describeTransport(
    'jetstream',
    (run) =>
      jetstream({ servers: natsUrl(), stream: `conformance-${run}`, prefix: `conformance-${run}`, ackWait: '2s' }),
    { processes: 'many', firstDelivery: 'message' },
    { database: () => createDatabase() },
  );
});
