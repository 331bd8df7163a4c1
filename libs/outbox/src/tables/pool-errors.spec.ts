import { once } from 'node:events';
import { createServer } from 'node:net';
import { Pool } from 'pg';
import type { DataSource } from 'typeorm';
import { Database } from './database.js';

/** AuthenticationOk, ReadyForQuery, and at once what a server says that ends the session. */
const fields = 'SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0';
const ended = Buffer.alloc(5);
ended.write('E');
ended.writeUInt32BE(4 + fields.length, 1);
const greeting = Buffer.concat([
  Buffer.from('R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I', 'latin1'),
  ended,
  Buffer.from(fields, 'latin1'),
]);

describe("the application's pool", () => {
  it('bears that a new session is ended before anybody listens to its connection', async () => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end(greeting));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' ? address?.port : 0;
    const pool = new Pool({ host: '127.0.0.1', port, user: 'x', database: 'x' });
    new Database({ driver: { master: pool } } as unknown as DataSource, 'outbox').bearEndedSessions();
    // As TypeORM does: its own listener is there a microtask after the pool gave the connection away.
    const client = await pool.connect();
    await new Promise<void>((resolve) => client.once('end', () => resolve()));
    client.release(true);
    await pool.end();
    server.close();
  });
});
