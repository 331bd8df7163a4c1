import { connect } from 'node:net';

/** What a server says of itself to whoever connects. */
export interface NatsInfo {
  readonly version: string;
  readonly jetstream?: boolean;
  readonly max_payload: number;
}

/** The first line a server sends, in the clear even where TLS is asked for next. */
export function readInfo(url: string, withinMs = 5_000): Promise<NatsInfo> {
  const [first = ''] = url.split(',');
  const { hostname: bracketed, port } = new URL(first.includes('://') ? first : `nats://${first}`);
  const hostname = bracketed.replace(/^\[(.*)\]$/, '$1');
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port || 4222), hostname);
    const fail = (error: Error): void => {
      socket.destroy();
      reject(new Error(`no NATS server answers at ${hostname}:${port || 4222}: ${error.message}`, { cause: error }));
    };
    let text = '';
    socket.setEncoding('utf8');
    socket.setTimeout(withinMs, () => fail(new Error(`nothing came within ${withinMs} ms`)));
    socket.on('error', fail);
    socket.on('close', () => fail(new Error('it closed the connection')));
    socket.on('data', (data) => {
      text += data;
      const info = /^INFO (\{.*\})\s*\r\n/.exec(text)?.[1];
      if (!info) return;
      resolve(JSON.parse(info));
      socket.destroy();
    });
  });
}
