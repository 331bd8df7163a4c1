import { connect, headers, type JetStreamManager, type NatsConnection } from 'nats';
import { orderPlaced, payloadOf } from './app.js';
import { pause } from './figures.js';

/** As the relay's batch: so many publishes are on their way at once. */
const window = 500;
const encoder = new TextEncoder();

/** What relaying is compared with: the `nats` client alone. It also tells, by the server's own clock, how fast a stream grew. */
export class PlainNats {
  private constructor(
    private readonly connection: NatsConnection,
    private readonly manager: JetStreamManager,
  ) {}

  static async open(url: string): Promise<PlainNats> {
    const connection = await connect({ servers: url });
    return new PlainNats(connection, await connection.jetstreamManager());
  }

  /** The same payloads and an id for each, pipelined; of an event's own headers only its type. */
  async publish(stream: string, events: number): Promise<void> {
    const client = this.connection.jetstream();
    await this.manager.streams.add({ name: stream, subjects: [`${stream}.>`] });
    for (let from = 0; from < events; from += window)
      await Promise.all(
        Array.from({ length: Math.min(window, events - from) }, (_, i) => {
          const all = headers();
          all.set('ce-type', orderPlaced);
          const data = encoder.encode(JSON.stringify(payloadOf(from + i)));
          return client.publish(`${stream}.${orderPlaced}`, data, { headers: all, msgID: `${stream} ${from + i}` });
        }),
      );
  }

  /** Messages a second, from the first after the warm-up to the last, when the stream has them all. */
  async growth(stream: string, events: number, warmUp: number): Promise<number> {
    for (let has = 0; has < events; has = (await this.manager.streams.info(stream)).state.messages) await pause(20);
    const skipped = Math.max(1, Math.floor(events * warmUp));
    const took = (await this.storedAt(stream, events)) - (await this.storedAt(stream, skipped));
    return ((events - skipped) * 1_000) / took;
  }

  async remove(stream: string): Promise<void> {
    await this.manager.streams.delete(stream);
  }

  close(): Promise<void> {
    return this.connection.close();
  }

  private async storedAt(stream: string, seq: number): Promise<number> {
    return (await this.manager.streams.getMessage(stream, { seq })).time.getTime();
  }
}
