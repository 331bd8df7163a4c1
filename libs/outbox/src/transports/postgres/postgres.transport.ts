import type {
  DeliveryReceiver,
  ForwardCounts,
  OutgoingBatch,
  Transport,
  TransportCapabilities,
  TransportFactory,
} from '../../core/transport.js';

/**
 * Postgres alone. A batch is fanned out inside the database in one statement, and what this process can start is
 * handed over in memory; the rest waits in `deliveries` for the takers of whichever process has room.
 *
 *   queue ── fan-out ──▶ deliveries ──┬─ leased to this worker, handed over at once
 *                                     └─ without lease, fetched by a taker
 */
class PostgresTransport implements Transport {
  private receiver: DeliveryReceiver | undefined;

  constructor(
    readonly name: string,
    readonly capabilities: TransportCapabilities,
  ) {}

  async start(receiver: DeliveryReceiver): Promise<void> {
    this.receiver = receiver;
  }

  async forward(batch: OutgoingBatch): Promise<ForwardCounts> {
    const receiver = this.receiver;
    const { handedOver, ...counts } = await batch.fanOut(receiver?.room() ?? new Map());
    if (handedOver.length > 0) receiver?.receive(handedOver);
    return counts;
  }

  async stop(): Promise<void> {
    this.receiver = undefined;
  }

  async close(): Promise<void> {}
}

/** Any number of processes on one database, and nothing else to run. The default. */
export function postgres(): TransportFactory {
  return factory('postgres', { processes: 'many', firstDelivery: 'row' });
}

/** The same for exactly one process: the boot refuses a second live worker. For tests, tools and single-process apps. */
export function memory(): TransportFactory {
  return factory('memory', { processes: 'one', firstDelivery: 'row' });
}

function factory(name: string, capabilities: TransportCapabilities): TransportFactory {
  return Object.freeze({ name, capabilities, create: () => new PostgresTransport(name, capabilities) });
}
