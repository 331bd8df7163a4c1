import { type AddressInfo, createServer, type Socket } from 'node:net';
import { InfrastructureConnection } from './infrastructure-connection.js';
import { statement } from './wire/statement.js';

const log = { log: () => {}, warn: () => {}, error: () => {} };
/** AuthenticationOk and ReadyForQuery: a pooler without a server says so much, and no more. */
const welcome = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);

describe('an infrastructure connection', () => {
  it('gives up on a server that lets it in and does not answer', async () => {
    const sockets: Socket[] = [];
    const server = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      socket.once('data', () => socket.write(welcome));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const connection = new InfrastructureConnection('test', () => ({ host: '127.0.0.1', port, user: 'x' }), log);
    await expect(connection.run(statement('one', 'SELECT 1')())).rejects.toThrow('did not answer within 10000 ms');
    await connection.close();
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
});
