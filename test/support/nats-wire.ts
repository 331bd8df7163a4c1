import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** One message as the server sends it. */
export interface WireMessage {
  readonly subject: string;
  /** Where an answer goes; of a message that a consumer gave, where its acknowledgement goes. */
  readonly reply: string;
  /** As text, with the line that says the version and a status. */
  readonly headers: string;
  readonly body: string;
}

/**
 * A connection to nats-server that speaks its protocol by hand: for tests that have to see what the broker has, or to do
 * to it what no library would, from outside of what they test.
 */
export class NatsWire {
  private readonly inbox = `_WIRE.${randomUUID()}`;
  private readonly waiting = new Map<string, (message: WireMessage) => void>();
  private data = Buffer.alloc(0);
  private number = 0;

  private constructor(private readonly socket: Socket) {
    socket.on('data', (data) => this.read(data));
    socket.on('error', () => {});
  }

  static async open(url: string): Promise<NatsWire> {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    await once(socket, 'connect');
    const wire = new NatsWire(socket);
    socket.write('CONNECT {"verbose":false,"pedantic":false,"headers":true,"protocol":1}\r\n');
    return wire;
  }

  /** A call to the server's JetStream API, such as `STREAM.INFO.name`. Rejects with the error that it answers. */
  async api<T>(call: string, body: unknown = {}): Promise<T> {
    const { body: text } = await this.request(`$JS.API.${call}`, JSON.stringify(body));
    const answer = JSON.parse(text) as T & { error?: { description: string } };
    if (answer.error) throw new Error(`${call}: ${answer.error.description}`);
    return answer;
  }

  /** Publishes to a stream, and waits for its acknowledgement. */
  async publish(subject: string, headers: Readonly<Record<string, string>>, body: string): Promise<void> {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    await this.request(subject, body, `NATS/1.0\r\n${lines.join('')}\r\n`);
  }

  /** Resolves to the first message that comes back, whatever it is. */
  request(subject: string, body: string, headers = ''): Promise<WireMessage> {
    const sid = String(++this.number);
    const reply = `${this.inbox}.${sid}`;
    const [head, all] = [Buffer.byteLength(headers), Buffer.byteLength(headers) + Buffer.byteLength(body)];
    const line = headers ? `HPUB ${subject} ${reply} ${head} ${all}` : `PUB ${subject} ${reply} ${all}`;
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`nobody answered on ${subject}`)), 5_000);
      this.waiting.set(sid, (message) => {
        clearTimeout(late);
        this.waiting.delete(sid);
        resolve(message);
      });
      this.socket.write(`SUB ${reply} ${sid}\r\nUNSUB ${sid} 1\r\n${line}\r\n${headers}${body}\r\n`);
    });
  }

  close(): void {
    this.socket.destroy();
  }

  private read(data: Buffer): void {
    this.data = Buffer.concat([this.data, data]);
    for (let end = this.data.indexOf('\r\n'); end >= 0; end = this.data.indexOf('\r\n')) {
      const [verb, ...rest] = this.data.subarray(0, end).toString().split(' ');
      let used = end + 2;
      if (verb === 'PING') this.socket.write('PONG\r\n');
      if (verb === 'MSG' || verb === 'HMSG') {
        const size = Number(rest.at(-1));
        if (this.data.length < used + size + 2) return;
        this.arrived(verb, rest, this.data.subarray(used, used + size));
        used += size + 2;
      }
      this.data = this.data.subarray(used);
    }
  }

  /** `<subject> <subscription> [reply] [size of headers] <size>`; the subject of what a consumer gives is not the inbox. */
  private arrived(verb: string, rest: readonly string[], data: Buffer): void {
    const sizes = verb === 'HMSG' ? 2 : 1;
    const head = verb === 'HMSG' ? Number(rest.at(-2)) : 0;
    const [subject = '', sid = '', reply = ''] = rest.slice(0, rest.length - sizes);
    const [headers, body] = [data.subarray(0, head).toString(), data.subarray(head).toString()];
    this.waiting.get(sid)?.({ subject, reply, headers, body });
  }
}
