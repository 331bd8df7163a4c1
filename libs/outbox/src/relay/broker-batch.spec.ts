import { DataSource } from 'typeorm';
import { eventually } from '../../../../test/support/eventually.js';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import type { OutgoingRow, SendOutcome, SendResult } from '../core/transport.js';
import { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { outboxSchema } from '../tables/schema/outbox-schema.js';
import { brokerBatch, mostRefusals } from './broker-batch.js';

const log = { log: () => {}, warn: () => {}, error: () => {} };
const all = (kind: 'sent' | 'unsent') => async (events: readonly OutgoingRow[]) => ({
  outcomes: events.map((): SendOutcome => ({ kind })),
});

describe('a batch for a broker', () => {
  let store: TestDatabase;
  let source: DataSource;
  let database: Database;
  let connection: InfrastructureConnection;

  beforeEach(async () => {
    store = await createDatabase();
    source = await new DataSource({ type: 'postgres', url: store.url }).initialize();
    await outboxSchema.up(source);
    database = new Database(source, 'outbox');
    connection = database.infrastructure('test', log);
  });
  afterEach(async () => {
    await connection.close();
    await source.destroy();
    await store.drop();
  });

  const publish = (payload: string, count = 1) =>
    store.query(
      `WITH e AS (INSERT INTO outbox.events (bucket, id, type, payload)
         SELECT outbox.bucket(x.id), x.id, 'a.b.c', ${payload} FROM (SELECT outbox.uuid7(now()) AS id FROM generate_series(1, ${count})) x RETURNING id)
       INSERT INTO outbox.queue (event_id) SELECT id FROM e`,
    );
  const queued = () =>
    store.query<{ tid: string; event_id: string }>('SELECT ctid::text AS tid, event_id FROM outbox.queue');
  const batch = (send: (events: readonly OutgoingRow[]) => Promise<SendResult>, gaveUp = async () => {}) =>
    brokerBatch(
      { database, connection, batch: 500, from: { floor: '-infinity', reachMs: 0 }, refused: () => {}, gaveUp },
      send,
    );

  it('whose session was lost meanwhile takes no rows that stand in the places of its own by now', async () => {
    await publish("'{}'");
    const [own] = await queued();
    await batch(async (events) => {
      // The process was paused: Postgres ended its transaction, another relay did the work, and somebody published.
      await store.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nestjs-outbox test'`,
      );
      await store.query('DELETE FROM outbox.queue');
      await store.query('VACUUM outbox.queue');
      await publish("'{}'");
      expect((await queued())[0]?.tid).toBe(own?.tid);
      return all('sent')(events);
    }).catch(() => {});
    await eventually('the lost session has been noticed', () => batch(all('unsent')).then(() => true));
    expect((await queued()).map(({ event_id }) => event_id)).not.toEqual([own?.event_id]);
    expect(await queued()).toHaveLength(1);
  });

  it('takes out of the queue what arrived, keeps what did not, uncharged, and says what is wrong', async () => {
    await publish("'{}'", 3);
    let sent = '';
    const half = async (events: readonly OutgoingRow[]): Promise<SendResult> => {
      sent = events[1]?.id ?? '';
      return {
        outcomes: events.map(({ id }) => ({ kind: id === sent ? 'sent' : 'unsent' })),
        trouble: new Error('cut'),
      };
    };
    await expect(batch(half)).rejects.toThrow('cut');
    const left = await store.query<{ event_id: string; attempts: number }>(
      'SELECT event_id, attempts FROM outbox.queue',
    );
    expect(left.map(({ attempts }) => attempts)).toEqual([0, 0]);
    expect(left.map(({ event_id }) => event_id)).not.toContain(sent);
  });

  it('of large events takes some at a time, and says that more wait', async () => {
    // Random, so that it is stored as large as it is.
    await publish(
      `to_jsonb((SELECT string_agg(encode(sha256((x.id::text || n)::bytea), 'base64'), '') FROM generate_series(1, 12000) n))`,
      24,
    );
    const sizes: number[] = [];
    let more = true;
    while (more) {
      const result = await batch(all('sent'));
      sizes.push(result.taken);
      ({ more } = result);
    }
    expect(sizes.length).toBeGreaterThan(1);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(24);
    expect(await queued()).toEqual([]);
  });

  it('does not wait for what the application does about a dead letter', async () => {
    await publish("'{}'");
    await store.query('UPDATE outbox.queue SET attempts = $1', [mostRefusals - 1]);
    const refuse = async (events: readonly OutgoingRow[]) => ({
      outcomes: events.map((): SendOutcome => ({ kind: 'refused', reason: 'too large' })),
    });
    await batch(refuse, () => new Promise(() => {}));
    expect(await store.query('SELECT durable, error FROM outbox.dead_letters')).toEqual([
      { durable: '#relay', error: 'too large' },
    ]);
  });
});
