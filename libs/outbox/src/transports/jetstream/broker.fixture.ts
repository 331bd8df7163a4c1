import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach } from '@jest/globals';
import { connect, type JetStreamClient, type JetStreamManager, type NatsConnection, type StreamConfig } from 'nats';
import { BrokerSite } from '../../../../../test/support/broker-site.js';
import { CapturedLog } from '../../../../../test/support/test-app.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import type { ServedDurable } from '../../core/transport.js';
import type { ConsumerParts } from './consumer.js';
import { type JetstreamOptions, resolve } from './jetstream.options.js';

/** A plain client, which knows nothing of the library, beside what is tested. */
export interface Broker {
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  readonly client: JetStreamClient;
  readonly manyFilters: boolean;
  /** A name for a stream and a prefix of a test's own. */
  name(): string;
  config(stream: string): Promise<StreamConfig>;
}

export function useBroker(url: () => string = natsUrl): Broker {
  let connection: NatsConnection;
  let manager: JetStreamManager;
  beforeAll(async () => {
    connection = await connect({ servers: url() });
    manager = await connection.jetstreamManager();
  });
  afterAll(() => connection?.close());
  return {
    get connection() {
      return connection;
    },
    get manager() {
      return manager;
    },
    get client() {
      return connection.jetstream();
    },
    get manyFilters() {
      return !(connection.info?.version ?? '').startsWith('2.9.');
    },
    name: () => `t-${randomBytes(6).toString('hex')}`,
    config: async (stream) => (await manager.streams.info(stream)).config,
  };
}

/** A site with a server of its own for each test, and a plain client's hands on what is on it. */
export function useBrokerSite(): { readonly site: BrokerSite; readonly manager: JetStreamManager } {
  let site: BrokerSite | undefined;
  let admin: NatsConnection | undefined;
  let manager: JetStreamManager | undefined;
  beforeEach(async () => {
    site = await BrokerSite.open();
    admin = await connect({ servers: site.server.url });
    manager = await admin.jetstreamManager();
  });
  afterEach(async () => {
    await admin?.close();
    await site?.close();
  });
  const there = <T>(part: T | undefined): T => {
    if (!part) throw new Error('the site is there from beforeEach on');
    return part;
  };
  return {
    get site() {
      return there(site);
    },
    get manager() {
      return there(manager);
    },
  };
}

/** What `ensureStream` and `ensureConsumer` work with, for one outbox. */
export function partsOf(
  broker: Broker,
  options: JetstreamOptions,
  installation = 'one',
): ConsumerParts & { readonly log: CapturedLog } {
  const { settings, problems } = resolve(options);
  if (problems.length > 0) throw new Error(problems.join('; '));
  const { manager, manyFilters } = broker;
  return { manager, settings, installation, manyFilters, log: new CapturedLog() };
}

export function durableOf(name: string, patterns: readonly string[], since: Date | null = null): ServedDurable {
  return { id: 1, name, types: patterns.map((pattern) => ({ pattern, since })) };
}
