import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** A way to the database of one app's own, which can be cut: that app is then without it for good, and no other is. */
export class Cable {
  private readonly sockets = new Set<Socket>();
  private isCut = false;

  private constructor(
    private readonly server: Server,
    /** Of the database, through the cable. */
    readonly url: string,
  ) {}

  static async to(url: string): Promise<Cable> {
    const target = new URL(url);
    const server = createServer((socket) => cable.join(socket, target));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const through = new URL(url);
    through.hostname = '127.0.0.1';
    through.port = String((server.address() as AddressInfo).port);
    const cable = new Cable(server, through.href);
    return cable;
  }

  /** Connections end, and new ones are refused as soon as they are made. */
  cut(): void {
    this.isCut = true;
    for (const socket of this.sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    const closed = once(this.server, 'close');
    this.server.close();
    await closed;
  }

  private join(here: Socket, { hostname, port }: URL): void {
    if (this.isCut) {
      here.destroy();
      return;
    }
    const there = connect(Number(port || 5432), hostname);
    for (const socket of [here, there]) {
      this.sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        this.sockets.delete(socket);
        (socket === here ? there : here).destroy();
      });
    }
    here.pipe(there).pipe(here);
  }
}
