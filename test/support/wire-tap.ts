import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/**
 * Stands between an app and Postgres and reads what the app sends, so that statements are counted where they leave the
 * process and not where somebody says that they were sent.
 */
export interface WireTap {
  readonly url: string;
  /** One entry for every statement executed: `query` (simple protocol) or `execute` (prepared). */
  readonly statements: ('query' | 'execute')[];
  close(): Promise<void>;
}

export async function tapWire(databaseUrl: string): Promise<WireTap> {
  const target = new URL(databaseUrl);
  const statements: WireTap['statements'] = [];
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(Number(target.port || 5432), target.hostname);
    const reader = new FrontendReader(statements);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => to.destroy());
    }
    client.on('data', (data: Buffer) => {
      reader.read(data);
      upstream.write(data);
    });
    upstream.pipe(client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('the tap has no port');
  const url = new URL(databaseUrl);
  url.hostname = '127.0.0.1';
  url.port = String(address.port);
  return {
    url: url.href,
    statements,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Cuts the bytes of a client into messages: the first has no type, each later one is type, length, body. */
class FrontendReader {
  private rest: Buffer = Buffer.alloc(0);
  private started = false;

  constructor(private readonly statements: WireTap['statements']) {}

  read(data: Buffer): void {
    this.rest = Buffer.concat([this.rest, data]);
    for (;;) {
      const head = this.started ? 1 : 0;
      if (this.rest.length < head + 4) return;
      const length = head + this.rest.readInt32BE(head);
      if (this.rest.length < length) return;
      if (this.started) this.note(String.fromCharCode(this.rest[0] ?? 0));
      this.started = true;
      this.rest = this.rest.subarray(length);
    }
  }

  private note(type: string): void {
    if (type === 'Q') this.statements.push('query');
    if (type === 'E') this.statements.push('execute');
  }
}
