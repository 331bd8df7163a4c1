import { type Consumer, type ConsumerMessages, type JsMsg, type MsgHdrs, millis, nanos } from 'nats';
import { BackgroundService } from '../../core/background-service.js';
import type { Log } from '../../core/throttled-log.js';
import type { DeliveryReceiver, IncomingMessage, ServedDurable } from '../../core/transport.js';
import type { Nudge } from '../../core/wake-signal.js';
import { eventIdOf, eventOf, installationOf } from './cloud-event.js';
import { endRequest } from './end-request.js';
import { type InFlight, quietly } from './in-flight.js';
import type { JetstreamSettings } from './jetstream.options.js';
import type { Link } from './link.js';
import { brokerWords } from './nats-errors.js';
import { typeOf } from './subjects.js';

/** One request stays open so long; messages come as they are published. A paused process is given some for as long, in vain. */
const openMs = 5_000;
/** The server says so often that it is there; when it does not, the consumer is looked for. */
const heartbeatMs = 1_000;
const idleMs = 1_000;

export interface PullerParts {
  readonly link: Link;
  readonly settings: JetstreamSettings;
  readonly installation: string;
  readonly receiver: DeliveryReceiver;
  readonly inFlight: InFlight;
  /** The name of the durable's consumer now. */
  readonly consumerOf: (durable: string) => string;
  /** Looks whether everything is there. */
  readonly watchdog: Nudge & { isRefused(durable: string): boolean };
  readonly log: Log;
}

/**
 * Asks for as many messages of one durable as there is room for, again and again. Requests of a size of their own, and
 * no iterator of a fixed one: what is fetched and waits for a slot is kept from every other worker.
 */
export class Puller extends BackgroundService {
  private consumer: Consumer | undefined;
  private ackWaitMs: number;
  private messages: ConsumerMessages | undefined;
  private arrived: JsMsg[] = [];
  private mostRoom = 1;
  /** Since when a request has been open without a message, or one after the other. */
  private openSince: number | undefined;

  constructor(
    private readonly parts: PullerParts,
    private readonly durable: ServedDurable,
  ) {
    super(`outbox.jetstream.${durable.name}`, parts.log);
    this.ackWaitMs = parts.settings.ackWaitMs;
  }

  get openMs(): number {
    return this.openSince === undefined ? 0 : performance.now() - this.openSince;
  }

  /** There may be a connection, or a consumer. */
  nudge(): void {
    this.wake.nudge();
  }

  /** There may be room. This is told with every message that ends, and only now and then worth a turn. */
  offer(room: ReadonlyMap<number, number>): void {
    if (this.isWorth(room.get(this.durable.id) ?? 0)) this.wake.nudge();
  }

  /** The consumer may be another one by now. */
  reset(): void {
    this.consumer = undefined;
    this.openSince = undefined;
    // Nothing more comes on a connection that is lost.
    if (this.parts.link.connected) void endRequest(this.messages);
    else this.messages?.stop();
    this.wake.nudge();
  }

  override async stop(): Promise<void> {
    const stopped = super.stop();
    await endRequest(this.messages);
    await stopped;
    this.flush();
  }

  protected async turn(): Promise<number> {
    const { link, receiver, watchdog } = this.parts;
    const room = receiver.room().get(this.durable.id) ?? 0;
    this.mostRoom = Math.max(this.mostRoom, room);
    if (!this.isWorth(room) || !link.connected || watchdog.isRefused(this.durable.name)) {
      this.openSince = undefined;
      return idleMs;
    }
    try {
      await this.fetch(room);
      return 0;
    } catch (error) {
      this.consumer = undefined;
      this.openSince = undefined;
      if (this.stopping) return 0;
      this.throttled.warn('fetch', `durable '${this.durable.name}' gets no messages: ${brokerWords(error)}`);
      watchdog.nudge();
      return idleMs / 2;
    }
  }

  /** Not one by one as slots come free: a request for each message costs as much as the message. */
  private isWorth(room: number): boolean {
    return room >= this.mostRoom / 2;
  }

  private async fetch(room: number): Promise<void> {
    const { link, settings, consumerOf } = this.parts;
    if (!this.consumer) {
      const consumer = await link.client.consumers.get(settings.stream, consumerOf(this.durable.name));
      // As the look-up just now told it.
      const { config } = await consumer.info(true);
      this.ackWaitMs = millis(config.ack_wait ?? nanos(settings.ackWaitMs));
      this.consumer = consumer;
    }
    // What is asked for and not waited for is given all the same.
    if (this.stopping) return;
    const messages = await this.consumer.fetch({ max_messages: room, expires: openMs, idle_heartbeat: heartbeatMs });
    this.messages = messages;
    this.openSince ??= performance.now();
    if (this.stopping) void endRequest(messages);
    for await (const message of messages) this.arrive(message);
  }

  /** Together, what came together: redelivered ones and copies are one statement then. */
  private arrive(message: JsMsg): void {
    this.openSince = performance.now();
    this.arrived.push(message);
    if (this.arrived.length === 1) setImmediate(() => this.flush());
  }

  private flush(): void {
    const arrived = this.arrived.splice(0);
    const incoming = arrived.flatMap((message) => this.incoming(message));
    if (incoming.length > 0) this.parts.receiver.receiveMessages(incoming);
  }

  private incoming(message: JsMsg): IncomingMessage[] {
    const { inFlight, settings, installation } = this.parts;
    const type = typeOf(settings.prefix, message.subject);
    const headers = headersOf(message);
    const eventId = eventIdOf(headers);
    if (type === undefined || eventId === undefined) {
      this.throttled.warn(
        'foreign',
        `a message on '${message.subject}' is no event of an outbox (no ce-id, or no event type): it is acknowledged and does not run`,
      );
      return this.settle(message);
    }
    return [
      {
        eventId,
        type,
        durable: this.durable.id,
        message: inFlight.hold(message, this.ackWaitMs),
        redelivered: message.redelivered,
        foreign: installationOf(headers) !== installation,
        copy: () => eventOf(eventId, type, headers, message.data),
      },
    ];
  }

  private settle(message: JsMsg): [] {
    quietly(() => message.ack());
    return [];
  }
}

/** They are read when they are asked for, and a name that the client does not take (a blank in it) is an error then. */
function headersOf(message: JsMsg): MsgHdrs | undefined {
  try {
    return message.headers;
  } catch {
    return undefined;
  }
}
