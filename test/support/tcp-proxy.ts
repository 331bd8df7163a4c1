import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/**
 * A network between the library and its server that can lose an answer (the server did what it was asked, nobody hears
 * of it), hold back all that comes on one connection, to let it go at once, or be cut.
 */
export class TcpProxy {
  private whole = true;
  private silent = false;
  private armed: string | undefined;
  private holding: string | undefined;
  private held: { readonly client: Socket; readonly data: Buffer[] } | undefined;
  /** How many answers were lost. */
  lost = 0;
  private readonly sockets = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    /** The given URL, through this network. */
    readonly url: string,
    private to: URL,
  ) {}

  static async before(target: string): Promise<TcpProxy> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const url = new URL(target);
    url.hostname = '127.0.0.1';
    url.port = String(typeof address === 'object' && address ? address.port : 0);
    const proxy = new TcpProxy(server, url.href, new URL(target));
    server.on('connection', (client) => proxy.join(client, Number(proxy.to.port || 5432), proxy.to.hostname));
    return proxy;
  }

  /** Who connects from now on gets to another server, as when a service address moves; what is open stays. */
  leadTo(target: string): void {
    this.to = new URL(target);
  }

  /** The next answer to a message that names this is lost, and the connection with it. */
  loseAnswerTo(name: string): void {
    this.armed = name;
  }

  /** From the next message that names this, its connection hears nothing, not even its end, until `letGo`. */
  holdAnswersTo(name: string): void {
    this.holding = name;
  }

  /** Whether there is one that hears nothing. */
  get holds(): boolean {
    return this.held !== undefined;
  }

  letGo(): void {
    const held = this.held;
    this.held = undefined;
    held?.client.write(Buffer.concat(held.data));
  }

  /** Breaks every connection and lets no new one through, until `mend`. */
  cut(): void {
    this.whole = false;
    for (const socket of this.sockets) socket.destroy();
  }

  /** Connections stay open, new ones are let in, and nothing comes through, until `mend`: a firewall that forgot them. */
  swallow(): void {
    this.silent = true;
  }

  mend(): void {
    this.whole = true;
    this.silent = false;
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
    await once(this.server, 'close');
  }

  private join(client: Socket, port: number, host: string): void {
    if (!this.whole) {
      client.destroy();
      return;
    }
    const upstream = connect(port, host);
    let doomed = false;
    for (const socket of [client, upstream]) {
      this.sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        if (this.held?.client !== client) client.destroy();
        upstream.destroy();
      });
    }
    client.on('data', (data) => {
      if (this.silent) return;
      if (this.armed && data.includes(this.armed)) {
        this.armed = undefined;
        doomed = true;
      }
      if (this.holding && data.includes(this.holding)) {
        this.holding = undefined;
        this.held = { client, data: [] };
      }
      upstream.write(data);
    });
    upstream.on('data', (data) => {
      if (this.silent) return;
      if (this.held?.client === client) {
        this.held.data.push(data);
        return;
      }
      if (!doomed) {
        client.write(data);
        return;
      }
      this.lost += 1;
      client.destroy();
    });
  }
}
