import { DataSource } from 'typeorm';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { JobLocks } from './job-locks.js';

const log = { log: () => {}, warn: () => {}, error: () => {} };

describe('the locks of jobs', () => {
  let store: TestDatabase;
  let source: DataSource;
  let database: Database;
  const connections: InfrastructureConnection[] = [];
  const process = (): JobLocks => {
    const connection = database.infrastructure('jobs', log);
    connections.push(connection);
    return new JobLocks(database, connection);
  };

  beforeAll(async () => {
    store = await createDatabase();
    source = await new DataSource({ type: 'postgres', url: store.url }).initialize();
    database = new Database(source, 'outbox');
  });
  afterAll(async () => {
    for (const connection of connections) await connection.close();
    await source.destroy();
    await store.drop();
  });

  it('are granted once to a process that asks twice at a time', async () => {
    const locks = process();
    expect(await Promise.all([locks.take('a'), locks.take('a')])).toEqual([true, false]);
    await locks.release('a');
    expect(await process().take('a')).toBe(true);
  });

  it('are seen to be free by all who look at a time, and to be held by none but their holder', async () => {
    const many = Array.from({ length: 8 }, process);
    const look = () => Promise.all(many.map((locks) => locks.isFree('b')));
    for (let round = 0; round < 20; round++) expect(await look()).toEqual(many.map(() => true));
    expect(await many[0]?.take('b')).toBe(true);
    expect(await look()).toEqual(many.map(() => false));
  });
});
