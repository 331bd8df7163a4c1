import { randomUUID } from 'node:crypto';
import type { TransportFactory } from 'nestjs-outbox';
import { type JetstreamOptions, jetstream } from 'nestjs-outbox/jetstream';
import { eventually } from '../../support/eventually.js';
import { NatsWire, type WireMessage } from '../../support/nats-wire.js';
import { natsUrl } from '../../support/test-database.js';
import { FaultSite } from '../faults/fault-site.js';

/** Of a consumer, what the server says of it. */
export interface ConsumerState {
  readonly name: string;
  /** Messages that are yet to be given. */
  readonly num_pending: number;
  /** Messages that somebody was given and has not answered for. */
  readonly num_ack_pending: number;
  readonly num_redelivered: number;
  /** Requests for messages that are open. */
  readonly num_waiting: number;
  readonly ack_floor: { readonly stream_seq: number };
}

/** A stream of a test's own on a nats-server, with a look at it from outside of the library. */
export class Broker {
  readonly options: JetstreamOptions & { readonly stream: string; readonly prefix: string };

  private constructor(
    private readonly wire: NatsWire,
    readonly url: string,
    ackWait: '1s' | '2s' | '30s',
  ) {
    const name = `faults-${randomUUID().slice(0, 8)}`;
    this.options = { servers: url, stream: name, prefix: name, ackWait };
  }

  static async open(ackWait: '1s' | '2s' | '30s' = '2s', url = natsUrl()): Promise<Broker> {
    return new Broker(await NatsWire.open(url), url, ackWait);
  }

  /** With a site whose worker processes use it. */
  static async withSite(...args: Parameters<typeof Broker.open>): Promise<{ broker: Broker; site: FaultSite }> {
    const broker = await Broker.open(...args);
    return { broker, site: await FaultSite.open(undefined, broker.env) };
  }

  /** For worker processes. */
  get env(): Readonly<Record<string, string>> {
    return { JETSTREAM: JSON.stringify(this.options) };
  }

  /** For apps in the test's own process. */
  transport(options: JetstreamOptions = {}): TransportFactory {
    return jetstream({ ...this.options, ...options });
  }

  async messages(): Promise<number> {
    const { state } = await this.wire.api<{ state: { messages: number } }>(`STREAM.INFO.${this.options.stream}`);
    return state.messages;
  }

  consumer(durable = 'worker'): Promise<ConsumerState> {
    return this.wire.api(`CONSUMER.INFO.${this.options.stream}.${durable}`);
  }

  async consumers(): Promise<string[]> {
    const { consumers } = await this.wire.api<{ consumers: string[] | null }>(`CONSUMER.NAMES.${this.options.stream}`);
    return consumers ?? [];
  }

  /** Waits until the consumer has given everything, and everything was answered. */
  async answered(durable = 'worker', withinMs?: number): Promise<void> {
    await eventually(
      `no message of '${durable}' is open`,
      async () => {
        const { num_pending, num_ack_pending } = await this.consumer(durable);
        if (num_pending + num_ack_pending > 0) throw new Error(JSON.stringify({ num_pending, num_ack_pending }));
        return true;
      },
      withinMs,
    );
  }

  /** Takes the next message of a consumer and does not answer for it, as a worker that dies at once. */
  takeAndDrop(durable = 'worker'): Promise<WireMessage> {
    return this.wire.request(`$JS.API.CONSUMER.MSG.NEXT.${this.options.stream}.${durable}`, '{"batch":1}');
  }

  /** A message for an event, under whatever id the server shall know it by. */
  publish(event: { id: string; installation: string; messageId?: string; type?: string }): Promise<void> {
    const { id, installation, messageId = randomUUID(), type = 'test.work.asked' } = event;
    const headers = { 'Nats-Msg-Id': messageId, 'ce-id': id, 'ce-outboxid': installation };
    return this.wire.publish(`${this.options.prefix}.${type}`, headers, '{}');
  }

  /** A message of somebody who knows nothing of outboxes. */
  publishRaw(type: string, headers: Readonly<Record<string, string>>): Promise<void> {
    return this.wire.publish(`${this.options.prefix}.${type}`, headers, '{}');
  }

  /** The server forgets the ids it knows, as it does when its duplicate window has passed. */
  async forgetIds(): Promise<void> {
    const { stream } = this.options;
    const { config } = await this.wire.api<{ config: object }>(`STREAM.INFO.${stream}`);
    await this.wire.api(`STREAM.UPDATE.${stream}`, { ...config, duplicate_window: 100_000_000 });
    const probe = async (): Promise<number> => {
      await this.wire.publish(`${this.options.prefix}.test.id.probed`, { 'Nats-Msg-Id': 'probe' }, '');
      return this.messages();
    };
    // Known when the window was long; taken again when it is forgotten.
    const first = await probe();
    await eventually('ids are forgotten', async () => (await probe()) > first);
  }

  /** Ends the site's processes, when nothing is left for them to do, and the stream. */
  async close(site: FaultSite | undefined): Promise<void> {
    try {
      // One that the reconciler made for a message on its way is settled at the first look at it.
      await eventually(
        'no row waits',
        async () => (await site?.database.query('TABLE outbox.deliveries'))?.length === 0,
        10_000,
      );
    } finally {
      await site?.close();
      await this.remove();
    }
  }

  private async remove(): Promise<void> {
    await this.wire.api(`STREAM.DELETE.${this.options.stream}`).catch(() => {});
    this.wire.close();
  }
}
