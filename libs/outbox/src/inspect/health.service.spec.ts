import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { Client } from 'pg';
import { DataSource } from 'typeorm';
import { eventually } from '../../../../test/support/eventually.js';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import { WorkerIdentity } from '../core/worker-identity.js';
import { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { outboxSchema } from '../tables/schema/outbox-schema.js';
import { lockKeys } from '../tables/schema/schema-name.js';
import { OutboxHealth } from './health.service.js';

const log = { log: () => {}, warn: () => {}, error: () => {} };

function identity(number?: number): WorkerIdentity {
  const made = new WorkerIdentity();
  made.number = number;
  return made;
}

describe('health, of a server that does not answer', () => {
  /** AuthenticationOk and ReadyForQuery, and then nothing. */
  const welcome = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 0, 0x5a, 0, 0, 0, 5, 0x49]);

  const sockets: Socket[] = [];
  let server: Server;

  afterEach(() => {
    for (const socket of sockets) socket.destroy();
    server?.close();
  });

  it('is red within its five seconds, and its probes do not pile up in front of the loops', async () => {
    server = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      // The first hangs; whoever comes later is turned away at once.
      if (sockets.length > 1) socket.destroy();
      else socket.once('data', () => socket.write(welcome));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    // Never initialized: health must not need it.
    const source = new DataSource({ type: 'postgres' });
    const database = new Database(source, 'outbox', `postgres://x@127.0.0.1:${port}/x`);
    const connection = database.infrastructure('test', log);
    const health = new OutboxHealth(database, connection, identity(3), 1_000);
    const begin = performance.now();
    const reports = await Promise.all(Array.from({ length: 20 }, () => health.check()));
    const took = performance.now() - begin;
    expect(took).toBeGreaterThan(4_500);
    // Twenty that wait for each other would take a hundred seconds; a busy machine takes a moment more than five.
    expect(took).toBeLessThan(9_000);
    for (const report of reports)
      expect(report).toMatchObject({
        status: 'red',
        problems: [
          { status: 'red', code: 'database', message: expect.stringMatching(/did not answer within 5000 ms/) },
        ],
        worker: { number: 3, holdsLock: null },
        relay: null,
        vacuum: null,
      });
    // All shared one look; what comes behind it is the second to try, and not the twenty-first.
    await expect(connection.run(database.facts.clock())).rejects.toThrow();
    expect(sockets).toHaveLength(2);
    await connection.close();
  }, 40_000);

  it('is red for a DataSource that was never initialized', async () => {
    const database = new Database(new DataSource({ type: 'postgres' }), 'outbox');
    const health = new OutboxHealth(database, database.infrastructure('test', log), undefined, 1_000);
    expect(await health.check()).toMatchObject({
      status: 'red',
      problems: [{ code: 'database', message: expect.stringContaining('needs an initialized DataSource') }],
      worker: null,
    });
  });
});

describe('health, of a worker and its lock', () => {
  let store: TestDatabase;
  let source: DataSource;
  let database: Database;
  let connection: InfrastructureConnection;

  beforeAll(async () => {
    store = await createDatabase();
    source = await new DataSource({ type: 'postgres', url: store.url }).initialize();
    database = new Database(source, 'outbox');
    connection = database.infrastructure('test', log);
  });
  afterAll(async () => {
    await connection.close();
    await source.destroy();
    await store.drop();
  });

  it('is red before the schema is there, part by part', async () => {
    const report = await new OutboxHealth(database, connection, undefined, 1_000).check();
    expect(report.problems.map(({ code, message }) => [code, message])).toEqual(
      ['relay', 'deliveries', 'deadLetters', 'jobs', 'pauses', 'overruns'].map((part) => [
        'unreadable',
        expect.stringMatching(new RegExp(`^no figures of ${part}: relation .* does not exist`)),
      ]),
    );
    expect(report.vacuum).not.toBeNull();
    await outboxSchema.up(source);
  });

  it('believes the server and not the process', async () => {
    const other = new Client({ connectionString: store.url });
    await other.connect();
    await other.query('SELECT pg_advisory_lock($1, 41)', [lockKeys('outbox').worker]);
    const of = (number: number | undefined) => new OutboxHealth(database, connection, identity(number), 1_000).check();
    expect(await of(41)).toMatchObject({ status: 'green', worker: { number: 41, holdsLock: true } });
    expect(await of(42)).toMatchObject({
      status: 'red',
      worker: { number: 42, holdsLock: false },
      problems: [{ code: 'worker', message: expect.stringContaining('worker 42') }],
    });
    expect(await of(undefined)).toMatchObject({ status: 'red', worker: { number: null, holdsLock: false } });
    await other.end();
    const locks = `SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
    await eventually('looking leaves no lock behind', async () => (await store.value(locks)) === 0);
  });

  it('says nothing of the lock when the number changed while the server was asked', async () => {
    const changing = identity(51);
    const report = new OutboxHealth(database, connection, changing, 1_000).check();
    changing.number = 52;
    expect(await report).toMatchObject({ status: 'green', worker: { number: 52, holdsLock: null } });
  });
});
