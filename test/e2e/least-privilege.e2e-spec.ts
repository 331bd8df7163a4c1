import { setTimeout as pause } from 'node:timers/promises';
import {
  DeadLetters,
  type DeliveryContext,
  type OutboxEvent,
  OutboxInspector,
  outboxSchema,
  SnoozeError,
} from 'nestjs-outbox';
import { Client } from 'pg';
import { DataSource } from 'typeorm';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';
import { createDatabase } from '../support/test-database.js';
import { createRole, describeWithRoles, type TestRole } from '../support/test-role.js';

const event = 'billing.invoice.paid';
const followUp = 'billing.receipt.sent';
const verify = { schema: { onStart: 'verify' as const } };
const manifest = { emits: [event, followUp] };
const actors = ['publisher', 'worker', 'operator', 'retrier'] as const;
type Actor = (typeof actors)[number];

interface Task {
  readonly n: number;
  readonly does?: 'fail once' | 'fail' | 'snooze once' | 'hang once' | 'publish';
}

describeWithRoles('least privilege: roles that own nothing', () => {
  const stage = useStage('CREATE TABLE invoices (id int PRIMARY KEY, tenant_id text)');
  const roles = new Map<Actor, TestRole>();
  const url = (actor: Actor): string => roles.get(actor)?.urlOf(stage.database) ?? '';

  beforeAll(async () => {
    const owner = await new DataSource({ type: 'postgres', url: stage.database.url }).initialize();
    await outboxSchema.up(owner);
    await owner.destroy();
    for (const actor of actors) roles.set(actor, await createRole(actor));
    const named = Object.fromEntries(actors.map((actor) => [actor, roles.get(actor)?.name ?? '']));
    for (const sql of outboxSchema.grants(named)) await stage.database.query(sql);
    // An application that offers the operator's side is also a publisher to the gate.
    for (const sql of outboxSchema.grants({ publisher: named['retrier'] ?? '' })) await stage.database.query(sql);
    await stage.database.query(`GRANT SELECT, INSERT ON invoices TO ${named['publisher']}`);
    await stage.database.query(`GRANT SELECT, INSERT ON effects TO ${named['worker']}`);
  });

  // Runs after the stage's own hook: with the database the grants are gone.
  afterAll(async () => {
    for (const role of roles.values()) await role.drop();
  });

  let publisher: TestApp;
  let worker: TestApp;

  async function publish(payload: Task): Promise<string> {
    const { id } = await publisher.dataSource.transaction(async (manager) => {
      await manager.query('INSERT INTO invoices (id) VALUES ($1)', [payload.n]);
      return publisher.publisher.publish(event, payload);
    });
    return id;
  }

  const handled = (id: string, durable = 'ledger') =>
    eventually(`'${durable}' handled ${id}`, () =>
      stage.database.value<boolean>('SELECT count(*) = 1 FROM effects WHERE event_id = $1 AND durable = $2', [
        id,
        durable,
      ]),
    );

  const seen = new Set<string>();

  async function handle(given: OutboxEvent<Task>, context: DeliveryContext): Promise<void> {
    const first = !seen.has(given.id);
    seen.add(given.id);
    const { does } = given.payload;
    if (does === 'fail' && context.attempt < 3) throw new Error('asked to fail');
    if (does === 'fail once' && first) throw new Error('asked to fail once');
    if (does === 'snooze once' && first) throw new SnoozeError('50ms');
    if (does === 'hang once' && first) await pause(30_000, undefined, { signal: context.signal });
    if (does === 'publish') await worker.publisher.publish(followUp, { of: given.id });
    await effect(given, context);
  }

  it('a publisher passes the gate and publishes, in every way there is', async () => {
    publisher = await stage.boot({ url: url('publisher'), manifest, outbox: { ...verify, role: 'publisher' } });
    const { dataSource, publisher: events } = publisher;
    await publish({ n: 1 });
    await dataSource.transaction(() =>
      events.publishMany([
        { event, payload: { n: 2 } },
        { event, payload: { n: 3 }, tenantId: 'acme', subject: 's', headers: { from: 'test' } },
      ]),
    );
    await dataSource.transaction(() => events.publishFor('acme', event, { n: 4 }));
    await dataSource.transaction(() => events.publish(event, { n: 5 }, { delay: '1h' }));
    await dataSource.transaction(() =>
      events.publish(event, { n: 6 }, { runAt: new Date(Date.now() + 3 * 86_400_000) }),
    );
    await events.publishNow(event, { n: 7 });
    const runner = dataSource.createQueryRunner();
    await runner.startTransaction();
    await events.with(runner).publish(event, { n: 8 });
    await runner.commitTransaction();
    await runner.release();
    const rolledBack = dataSource.transaction(async () => {
      await events.publish(event, { n: 9 });
      throw new Error('rolled back');
    });
    await expect(rolledBack).rejects.toThrow('rolled back');
    expect(await stage.database.query(`SELECT (payload->>'n')::int AS n FROM outbox.events ORDER BY 1`)).toEqual(
      [1, 2, 3, 4, 5, 7, 8].map((n) => ({ n })),
    );
    expect(await stage.database.query(`SELECT payload->'n' AS n FROM outbox.scheduled`)).toEqual([{ n: 6 }]);
  });

  it('it may publish what is unique, and learns no more of a standing event than its id', async () => {
    const once = () => publisher.publisher.publishNow(event, { n: 10 }, { unique: 'ten', delay: '20h' });
    const first = await once();
    expect(first.duplicate).toBe(false);
    expect(await once()).toEqual({ id: first.id, duplicate: true });
    await stage.database.query('DELETE FROM outbox.queue WHERE event_id = $1', [first.id]);
  });

  it('it cancels, by id, key and subject, in its own transaction, and reads nothing for it', async () => {
    const { dataSource, publisher: events } = publisher;
    const later = { delay: '20h', subject: 'about 7' } as const;
    const { id } = await events.publishNow(event, { n: 0 }, later);
    await events.publishNow(event, { n: 0 }, { ...later, unique: 'cancelled' });
    await events.publishNow(event, { n: 0 }, { ...later, delay: '30d' });
    const answers = await dataSource.transaction(async () => [
      await events.cancel({ id }),
      await events.cancel({ event, unique: 'cancelled' }),
      await events.cancel({ event, subject: 'about 7' }),
    ]);
    expect(answers).toEqual([1, 1, 1].map((cancelled) => ({ cancelled, tooLate: 0 })));
    // What an operator does needs the operator's rights, the audit's among them.
    const inspector = publisher.app.get(OutboxInspector);
    await expect(inspector.cancel({ id })).rejects.toMatchObject({ code: '42501' });
    const desk = await stage.boot({ url: url('retrier'), outbox: { ...verify, role: 'publisher' } });
    expect(await desk.app.get(OutboxInspector).cancel({ id }, { abort: true })).toEqual({ cancelled: 0, tooLate: 0 });
    await desk.close();
    await stage.database.query('DELETE FROM outbox.events WHERE id IN (SELECT event_id FROM outbox.handled)');
  });

  it('a worker relays and handles: first deliveries, history, retries, snoozes, timeouts, events that come due', async () => {
    worker = await stage.boot({
      url: url('worker'),
      manifest,
      outbox: { ...verify, role: 'worker', relay: { poll: '100ms' } },
      providers: [
        subscriber('billing.invoice.paid', 'ledger', handle, {
          from: 'beginning',
          backoff: ['50ms'],
          maxAttempts: 2,
          timeout: '3s',
        }),
        subscriber(followUp, 'receipt', effect),
      ],
    });
    await eventually('what was published before the first worker is handled', () =>
      stage.database.value<boolean>(`SELECT count(*) = 6 FROM effects WHERE durable = 'ledger'`),
    );
    await stage.database.query('UPDATE outbox.scheduled SET due_at = clock_timestamp()');
    await eventually('the scheduled one, too', () =>
      stage.database.value<boolean>(`SELECT count(*) = 7 FROM effects WHERE durable = 'ledger'`),
    );
    await handled(await publish({ n: 11 }));
    await handled(await publish({ n: 12, does: 'fail once' }));
    await handled(await publish({ n: 13, does: 'snooze once' }));
    await handled(await publish({ n: 14, does: 'hang once' }));
    const id = await publish({ n: 15, does: 'publish' });
    await handled(id);
    await eventually('the event that a handler published is handled', () =>
      stage.database.value<boolean>(`SELECT count(*) = 1 FROM effects WHERE durable = 'receipt'`),
    );
    expect(worker.log.matching(/permission denied/)).toEqual([]);
  });

  it('it gives up, and an operator’s app finds the letter, retries it and closes it', async () => {
    const id = await publish({ n: 21, does: 'fail' });
    const other = await publish({ n: 22, does: 'fail' });
    await eventually('both are dead letters', () =>
      stage.database.value<boolean>('SELECT count(*) = 2 FROM outbox.dead_letters'),
    );
    const desk = await stage.boot({ url: url('retrier'), outbox: { ...verify, role: 'publisher' } });
    const letters = desk.app.get(DeadLetters);
    expect((await letters.list()).map(({ eventId }) => eventId).sort()).toEqual([id, other].sort());
    expect(await letters.resolve(other, 'ledger')).toBe(true);
    expect(await letters.retry(id, 'ledger')).toBe(true);
    await eventually('it is dead again', () =>
      stage.database.value<boolean>('SELECT count(*) = 1 FROM outbox.dead_letters WHERE resolved_at IS NULL'),
    );
    expect(worker.log.matching(/permission denied/)).toEqual([]);
  });

  it('an operator’s app pauses, resumes, retries, discards, sends and retires; a worker obeys, and frees what it had parked', async () => {
    const desk = await stage.boot({ url: url('retrier'), outbox: { ...verify, role: 'publisher' } });
    const inspector = desk.app.get(OutboxInspector);
    const parked = (id: string) =>
      eventually('it is parked', () =>
        stage.database.value<boolean>('SELECT count(*) = 1 FROM outbox.deliveries WHERE event_id = $1 AND lease < 0', [
          id,
        ]),
      );
    await inspector.pause({ durable: 'ledger' });
    const id = await publish({ n: 31 });
    await parked(id);
    await inspector.resume({ durable: 'ledger' });
    await handled(id);
    await inspector.pause({ type: event }, { until: new Date(Date.now() + 3_600_000) });
    const other = await publish({ n: 32 });
    await parked(other);
    await stage.database.query('UPDATE outbox.pauses SET until = clock_timestamp() WHERE ended_at IS NULL');
    await handled(other);
    expect((await inspector.retryMany({}, { dryRun: true })).failed).toBe(0);
    expect((await inspector.retryMany({ state: ['discarded', 'retryable'] })).failed).toBe(0);
    await eventually('it is dead again', async () => (await inspector.discard({})).done > 0);
    expect(await inspector.retry(id, 'ledger')).toMatchObject({ outcome: 'unchanged' });
    expect(await inspector.send(id, { to: 'ledger', force: true })).toMatchObject({ outcome: 'done' });
    await stage.database.query(`INSERT INTO outbox.durables (name) VALUES ('codeless')`);
    expect(await inspector.retire('codeless')).toEqual({ dropped: 0 });
    await desk.close();
    expect(worker.log.matching(/permission denied/)).toEqual([]);
  });

  it('a worker forgets a day: it may call what empties a table, and empty none itself', async () => {
    const client = await connect('worker');
    const id = await stage.database.value<string>(
      `INSERT INTO outbox.events (bucket, id, type, payload) SELECT outbox.bucket(id), id, $1, '{}' FROM (SELECT outbox.uuid7(now() - interval '8 days') AS id) x RETURNING id`,
      [event],
    );
    const { rows } = await client.query(
      `SELECT outbox.forget_events(outbox.bucket($1), now() - interval '7 days') AS kept`,
      [id],
    );
    expect(rows).toEqual([{ kept: 0 }]);
    await client.query('SELECT outbox.forget_marks(outbox.bucket($1))', [id]);
    await client.end();
    expect(await stage.database.query('SELECT 1 FROM outbox.events WHERE id = $1', [id])).toEqual([]);
  });

  it('a worker frees what a worker that vanished had leased, and stops cleanly', async () => {
    const id = await stage.database.value<string>('SELECT id FROM outbox.events LIMIT 1');
    await stage.database.query('DELETE FROM effects');
    await stage.database.query('DELETE FROM outbox.handled WHERE event_id = $1', [id]);
    // In one statement: a sweep between two would take the worker's row away, since nothing is leased to it yet.
    await stage.database.query(
      `WITH w AS (INSERT INTO outbox.workers (app) VALUES ('vanished') RETURNING id)
       INSERT INTO outbox.deliveries (event_id, durable, lease) SELECT $1, d.id, w.id FROM outbox.durables d, w WHERE d.name = 'ledger'`,
      [id],
    );
    await handled(id);
    await worker.close();
    expect(worker.log.matching(/permission denied/)).toEqual([]);
    // The vanished one's row is kept for a while, in case a statement of its still ends.
    expect(await stage.database.query('SELECT * FROM outbox.workers WHERE gone_at IS NULL')).toEqual([]);
  });

  const tables = [
    ...['schema_version', 'durables', 'durable_types', 'events', 'handled', 'attempts', 'queue', 'scheduled'],
    ...['deliveries', 'dead_letters', 'unique_keys', 'workers', 'lives', 'job_state', 'job_runs', 'job_tenants'],
    ...['pauses', 'audit'],
  ];
  /** Hold rows within one transaction of their owner's, and are nobody else's. */
  const kept = ['kept_events', 'kept_handled', 'kept_attempts'];
  const forget = ['SELECT outbox.forget_events(0, now())', 'SELECT outbox.forget_marks(0)'];

  it('an operator reads every table, and finds none that the list forgot', async () => {
    const client = await connect('operator');
    for (const name of tables) await client.query(`SELECT * FROM outbox.${name}`);
    await client.end();
    const all = await stage.database.query<{ name: string }>(
      `SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`,
    );
    expect(all.map(({ name }) => name).sort()).toEqual([...tables, ...kept].sort());
  });

  async function connect(actor: Actor): Promise<Client> {
    const client = new Client({ connectionString: url(actor) });
    await client.connect();
    return client;
  }

  const owners = [
    ...kept.map((name) => `SELECT * FROM outbox.${name}`),
    'CREATE TABLE outbox.mine ()',
    'DROP TABLE outbox.queue',
    'ALTER TABLE outbox.queue ADD COLUMN x int',
  ];
  const denied: Readonly<Record<Actor, readonly string[]>> = {
    publisher: [
      // The claim reads pauses as whoever claims.
      ...tables
        .filter((name) => name !== 'unique_keys' && name !== 'pauses')
        .map((name) => `SELECT * FROM outbox.${name}`),
      ...tables.map((name) => `DELETE FROM outbox.${name}`),
      ...tables.map((name) => `TRUNCATE outbox.${name}`),
      'SELECT id FROM outbox.events_0',
      'SELECT count(*) FROM outbox.events',
      'SELECT event_id FROM outbox.queue',
      `UPDATE outbox.events SET payload = '{}'`,
      'UPDATE outbox.queue SET due_at = now()',
      'UPDATE outbox.unique_keys SET tenant = tenant',
      'UPDATE outbox.schema_version SET version = 0',
      `INSERT INTO outbox.events (bucket, id, type, payload, created_at) VALUES (0, gen_random_uuid(), 'a.b.c', '{}', now())`,
      `INSERT INTO outbox.events (bucket, id, type, payload) VALUES (0, gen_random_uuid(), 'a.b.c', '{}') RETURNING id`,
      `INSERT INTO outbox.events_0 (bucket, id, type, payload) VALUES (0, gen_random_uuid(), 'a.b.c', '{}')`,
      'INSERT INTO outbox.queue (event_id, attempts) VALUES (gen_random_uuid(), 9)',
      `INSERT INTO outbox.handled (bucket, event_id, durable, verdict) VALUES (0, gen_random_uuid(), 1, 'd')`,
      'INSERT INTO outbox.deliveries (event_id, durable) VALUES (gen_random_uuid(), 1)',
      `INSERT INTO outbox.durables (name) VALUES ('mine')`,
      'SELECT * FROM outbox.claim_0(gen_random_uuid(), 1::smallint, 1)',
      ...forget,
      ...owners,
    ],
    worker: [
      `UPDATE outbox.events SET payload = '{}'`,
      'DELETE FROM outbox.events',
      'DELETE FROM outbox.events_0',
      'DELETE FROM outbox.durables',
      'DELETE FROM outbox.attempts_0',
      `UPDATE outbox.attempts_0 SET error = ''`,
      'UPDATE outbox.schema_version SET version = 0',
      ...[...tables, 'events_0', 'handled_0', ...kept].map((name) => `TRUNCATE outbox.${name}`),
      ...owners,
    ],
    operator: [
      ...tables.map((name) => `INSERT INTO outbox.${name} DEFAULT VALUES`),
      ...tables.map((name) => `DELETE FROM outbox.${name}`),
      ...tables.map((name) => `TRUNCATE outbox.${name}`),
      'UPDATE outbox.dead_letters SET resolved_at = now()',
      'UPDATE outbox.queue SET due_at = now()',
      `UPDATE outbox.durables SET state = 'retired'`,
      'SELECT 1 FROM outbox.queue FOR UPDATE',
      ...forget,
      ...owners,
    ],
    retrier: [
      `UPDATE outbox.dead_letters SET payload = '{}'`,
      'DELETE FROM outbox.dead_letters',
      'DELETE FROM outbox.pauses',
      'DELETE FROM outbox.audit',
      `UPDATE outbox.audit SET who = 'nobody'`,
      `UPDATE outbox.durables SET name = 'mine'`,
      'DELETE FROM outbox.queue',
      'INSERT INTO outbox.queue (event_id, attempts) VALUES (gen_random_uuid(), 9)',
      'UPDATE outbox.deliveries SET attempt = 0',
      'INSERT INTO outbox.deliveries (event_id, durable, attempt) VALUES (gen_random_uuid(), 1, 9)',
      `UPDATE outbox.handled SET verdict = 'd'`,
      `INSERT INTO outbox.handled (bucket, event_id, durable, verdict) VALUES (0, gen_random_uuid(), 1, 'd')`,
      'DELETE FROM outbox.events',
      ...forget,
      ...owners,
    ],
  };

  it.each(actors)('denies everything else: %s', async (actor) => {
    const client = await connect(actor);
    const allowed: string[] = [];
    for (const sql of denied[actor]) {
      await client.query('BEGIN');
      const code = await client.query(sql).then(
        () => 'allowed',
        (error) => error.code,
      );
      await client.query('ROLLBACK');
      if (code !== '42501') allowed.push(`${code}: ${sql}`);
    }
    await client.end();
    expect(allowed).toEqual([]);
  });

  it('grants are those of a version: a history of migrations replays on an empty database, step by step', async () => {
    const database = await createDatabase();
    const owner = await new DataSource({ type: 'postgres', url: database.url }).initialize();
    try {
      const named = Object.fromEntries(actors.map((actor) => [actor, roles.get(actor)?.name ?? '']));
      const worker = named['worker'] ?? '';
      const may = (what: string) =>
        database.value<boolean>('SELECT has_table_privilege($1::name, $2, $3)', [worker, what, 'DELETE']);
      await outboxSchema.up(owner, { to: 1 });
      for (const sql of outboxSchema.grants({ to: 1, ...named })) await owner.query(sql);
      expect(await may('outbox.deliveries')).toBe(true);
      expect(await may('outbox.unique_keys')).toBe(false);
      // Without its version it names what is not there yet.
      await expect(owner.query(outboxSchema.grants(named).join(';'))).rejects.toThrow(/does not exist|could not find/);
      const old = new Client({ connectionString: roles.get('worker')?.urlOf(database) ?? '' });
      await old.connect();
      await outboxSchema.up(owner, { to: 2 });
      // Nobody but the owner has rights to what is new, until they are granted.
      await expect(old.query('SELECT * FROM outbox.job_state')).rejects.toMatchObject({ code: '42501' });
      await expect(old.query('SELECT outbox.forget_marks(0)')).rejects.toMatchObject({ code: '42501' });
      for (const sql of outboxSchema.grants({ to: 2, ...named })) await owner.query(sql);
      expect(await may('outbox.unique_keys')).toBe(true);
      await old.query('SELECT * FROM outbox.job_state');
      await old.query('SELECT outbox.forget_marks(0)');
      await outboxSchema.up(owner, { to: 4 });
      for (const sql of outboxSchema.grants({ to: 4, ...named })) await owner.query(sql);
      const claim = `SELECT claimed FROM outbox.claim_message_0('019a0000-0000-7000-8000-000000000000', 1::smallint, 1)`;
      expect((await old.query(claim)).rows).toEqual([{ claimed: false }]);
      await old.query('SELECT installation FROM outbox.schema_version');
      await old.end();
      await outboxSchema.up(owner);
      // Twice, and as the newest, is the same.
      for (const sql of outboxSchema.grants(named)) await owner.query(sql);
      expect(outboxSchema.grants(named)).toEqual(outboxSchema.grants({ to: 4, ...named }));
    } finally {
      await owner.destroy();
      await database.drop();
    }
  });

  it('grants quote any role’s name, know any schema, and refuse what is no role', async () => {
    const role = `O'Brien "${roles.get('worker')?.name}" <x>`.slice(0, 63);
    const ident = `"${role.replaceAll('"', '""')}"`;
    await stage.database.query(`CREATE ROLE ${ident}`);
    for (const sql of outboxSchema.grants({ publisher: role, worker: role, operator: role, retrier: role }))
      await stage.database.query(sql);
    expect(
      await stage.database.value('SELECT has_table_privilege($1::name, $2, $3)', [role, 'outbox.queue', 'DELETE']),
    ).toBe(true);
    await stage.database.query(`DROP OWNED BY ${ident}`);
    await stage.database.query(`DROP ROLE ${ident}`);
    expect(
      outboxSchema.grants({ schema: 'second', worker: 'w' }).every((sql) => / (ON|SCHEMA).* second\b/.test(sql)),
    ).toBe(true);
    expect(outboxSchema.grants({})).toEqual([]);
    expect(() => outboxSchema.grants({ schema: 'Out; DROP', worker: 'w' })).toThrow(
      /not a plain lower-case identifier/,
    );
    expect(() => outboxSchema.grants({ worker: '' })).toThrow(/role for 'worker' must be the name/);
    expect(() => outboxSchema.grants({ worker: 'r'.repeat(64) })).toThrow(/longer than the 63 bytes/);
    expect(() => outboxSchema.grants(JSON.parse('{"workers":"w"}'))).toThrow(/knows no 'workers'/);
  });
});
