import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import type { DeliveryState, OutboxInspector } from 'nestjs-outbox';
import type { Client } from 'pg';
import { bootApp, orderPlaced } from './app.js';
import { percentile } from './figures.js';
import { describeMachine } from './machine.js';
import { type BenchServer, openServer, withClient, withDatabase } from './server.js';

/**
 * What the inspector's reads cost beside millions of events: overview, a page of each state, and one event. Its own script,
 * because filling the week takes minutes. Nothing else runs meanwhile.
 */
const { values: given } = parseArgs({
  options: {
    events: { type: 'string', default: '10000000' },
    rounds: { type: 'string', default: '100' },
    json: { type: 'boolean', default: false },
  },
});
const [events, rounds] = [given.events, given.rounds].map(Number) as [number, number];

const types = ['bench.order.placed', 'bench.order.paid', 'bench.order.sent', 'bench.invoice.paid'];
const note = (text: string): void => void process.stderr.write(`${text}\n`);

const at = `now() - interval '6 days 20 hours' + n * interval '590399 seconds' / $1::int`;
/** A share of the events, spread over all of them. */
const every = (share: number): number => Math.max(1, Math.round(1 / share));

/** A week of events, handled by one durable or two, a million at a time; then what an outbox of that size has open. */
async function fill(client: Client): Promise<string> {
  for (let from = 0; from < events; from += 1_000_000) {
    await client.query(
      `INSERT INTO outbox.events (bucket, id, tenant_id, type, subject, payload, created_at)
       SELECT outbox.bucket(id), id, 'tenant-' || n % 50, ('{${types.join(',')}}'::text[])[1 + n % 4], CASE WHEN n % 10 = 0 THEN 'order-' || n / 20 END,
         jsonb_build_object('orderId', n, 'customer', 'customer-' || n % 1000), at
       FROM (SELECT n, at, outbox.uuid7(at) AS id FROM generate_series($2::int + 1, $3::int) n, LATERAL (SELECT ${at} AS at) t) x`,
      [events, from, Math.min(from + 1_000_000, events)],
    );
    note(`${Math.min(from + 1_000_000, events).toLocaleString('en')} events`);
  }
  for (let bucket = 0; bucket < 10; bucket += 1) {
    await client.query(
      `INSERT INTO outbox.handled (bucket, event_id, durable, verdict, started_at, worker) SELECT e.bucket, e.id, d.id, 'd', e.created_at, 1
       FROM outbox.events_${bucket} e, outbox.durables d WHERE d.name = 'ledger' OR d.name = 'mail' AND e.type = '${types[3]}'`,
    );
  }
  note('marks');
  await open(client);
  await client.query('VACUUM ANALYZE');
  await client.query('CHECKPOINT');
  const { rows } = await client.query<{ size: string }>(
    'SELECT pg_size_pretty(pg_database_size(current_database())) AS size',
  );
  return rows[0]?.size ?? '';
}

/** Twenty thousand retries, as many that only wait, two thousand dead letters and cancelled ones, queued and scheduled ones. */
async function open(client: Client): Promise<void> {
  const some = (share: number, offset: number): string =>
    `(SELECT id, created_at, row_number() OVER () AS n FROM (SELECT id, created_at, row_number() OVER (ORDER BY id) AS r FROM outbox.events) e WHERE e.r % ${every(share)} = ${offset})`;
  const share = 20_000 / events;
  await client.query(`CREATE TEMP TABLE picked AS SELECT * FROM ${some(share, 1)}`);
  await client.query(
    `INSERT INTO outbox.deliveries (event_id, durable, due_at, attempt, last_error)
     SELECT s.id, d.id, now() + (s.n % 7200 - 3600) * interval '1 second', CASE WHEN d.name = 'mail' THEN 3 ELSE 0 END, CASE WHEN d.name = 'mail' THEN repeat('Error: connect ETIMEDOUT ', 20) END
     FROM picked s, outbox.durables d WHERE d.name IN ('mail', 'audit')`,
  );
  await client.query(
    `DELETE FROM outbox.handled h USING picked s WHERE h.event_id = s.id AND h.durable = (SELECT id FROM outbox.durables WHERE name = 'mail')`,
  );
  await client.query(
    `WITH m AS (UPDATE outbox.handled h SET verdict = CASE WHEN s.n % 20 < 2 THEN 'x'::"char" ELSE 'c'::"char" END FROM picked s
       WHERE s.n % 20 < 4 AND h.event_id = s.id AND h.durable = (SELECT id FROM outbox.durables WHERE name = 'ledger') RETURNING h.bucket, h.event_id, h.verdict)
     INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at, error, attempts) SELECT e.id, 'ledger', e.type, e.payload, e.created_at, repeat('Error: no such account ', 20), 10
     FROM m JOIN outbox.events e ON e.bucket = m.bucket AND e.id = m.event_id WHERE m.verdict = 'x'`,
  );
  await client.query(
    `WITH x AS (SELECT outbox.uuid7(now()) AS id, now() AS at FROM generate_series(1, 1000)),
     e AS (INSERT INTO outbox.events (bucket, id, type, payload) SELECT outbox.bucket(id), id, $1, '{}' FROM x)
     INSERT INTO outbox.queue (event_id, due_at) SELECT id, at FROM x`,
    [orderPlaced],
  );
  await client.query(
    `INSERT INTO outbox.scheduled (id, due_at, type, payload) SELECT outbox.uuid7(at), at, $1, '{}' FROM (SELECT now() + n * interval '1 hour' AS at FROM generate_series(25, 2000) n) x`,
    [orderPlaced],
  );
  // A busy last minute, and what workers have in hand.
  await client.query(
    `UPDATE outbox.handled SET started_at = clock_timestamp() - (random() * 50) * interval '1 second'
     WHERE event_id IN (SELECT id FROM outbox.events ORDER BY id DESC OFFSET 1000 LIMIT 8000)`,
  );
  await client.query(
    `INSERT INTO outbox.workers (app, seen_at, in_flight) SELECT 'host-' || g.n, now() + interval '1 day', jsonb_build_object('running', 4, 'deliveries', (SELECT jsonb_agg(jsonb_build_array(x.id, 3, 40)) FROM picked x WHERE x.n / 4 = g.n))
     FROM generate_series(1, 4) g(n)`,
  );
  await client.query(
    `UPDATE outbox.deliveries d SET lease = g.worker FROM outbox.deliveries_running g WHERE d.event_id = g.event_id AND d.durable = g.durable`,
  );
}

interface Line {
  readonly what: string;
  readonly p50: number;
  readonly p95: number;
  readonly worst: number;
  readonly rows: number;
}

async function timed(what: string, work: (round: number) => Promise<number>): Promise<Line> {
  const took: number[] = [];
  let rows = 0;
  // The first few open connections and plan.
  for (let i = -5; i < rounds; i += 1) {
    const from = performance.now();
    rows = await work(Math.max(i, 0));
    if (i >= 0) took.push(performance.now() - from);
  }
  const [p50, p95, worst] = [50, 95, 100].map((percent) => percentile(took, percent)) as [number, number, number];
  note(`${what}: p50 ${p50.toFixed(1)}, p95 ${p95.toFixed(1)} ms, ${rows} rows`);
  return { what, p50, p95, worst, rows };
}

const states: readonly DeliveryState[] = ['pending', 'running', 'retryable', 'completed', 'discarded', 'cancelled'];

async function measure(url: string) {
  const app = await bootApp({ url, outbox: { role: 'publisher' } });
  try {
    return await withClient(url, async (client) => {
      await client.query(
        `WITH d AS (INSERT INTO outbox.durables (name, seen_at) VALUES ('ledger', now()), ('mail', now()), ('audit', now()), ('search', now()) RETURNING id)
         INSERT INTO outbox.durable_types (durable, pattern, matcher, since) SELECT id, 'bench.*.*', 'bench.%.%', '-infinity' FROM d`,
      );
      note(`filling a week with ${events.toLocaleString('en')} events`);
      const size = await fill(client);
      note(size);
      const { rows } = await client.query<{ id: string; subject: string }>(
        `SELECT id, subject FROM (SELECT id, subject FROM outbox.events TABLESAMPLE SYSTEM (${Math.min(100, 5_000_000 / events)})) x WHERE subject IS NOT NULL ORDER BY random() LIMIT ${rounds}`,
      );
      const inspector = app.inspector;
      const one = (round: number) => rows[round % rows.length] ?? { id: '', subject: '' };
      const listed = async (filter: Parameters<OutboxInspector['list']>[0]) =>
        (await inspector.list(filter)).deliveries.length;
      const lines = [
        await timed('overview', async () => (await inspector.overview()).durables.length),
        await timed(
          'overview of a type',
          async () => (await inspector.overview({ type: 'bench.invoice.*' })).durables.length,
        ),
      ];
      for (const state of states) lines.push(await timed(`list, ${state}`, () => listed({ state })));
      lines.push(
        await timed('list, all but completed', () => listed({})),
        await timed('list, all of a subject', (round) => listed({ state: states, subject: one(round).subject })),
        await timed('list, retryable of a tenant that has none', () =>
          listed({ state: 'retryable', tenantId: 'tenant-8' }),
        ),
        await timed('list, completed of a tenant', () => listed({ state: 'completed', tenantId: 'tenant-8' })),
        await timed('get', async (round) => (await inspector.get(one(round).id))?.deliveries.length ?? 0),
      );
      return { size, lines };
    });
  } finally {
    await app.close();
  }
}

const server: BenchServer = await openServer({ max_wal_size: '8GB' });
try {
  const machine = await describeMachine(server);
  const result = await withDatabase(server, measure);
  const table = new Table({
    head: ['', 'p50 ms', 'p95 ms', 'worst ms', 'rows'],
    style: { head: [], border: [], compact: true },
  });
  for (const { what, p50, p95, worst, rows } of result.lines)
    table.push([what, ...[p50, p95, worst].map((n) => n.toFixed(1)), rows]);
  process.stdout.write(
    given.json
      ? `${JSON.stringify({ machine, events, ...result })}\n`
      : `${machine.date} · ${machine.cores} cores (${machine.processor}) · Node ${machine.node} · Postgres ${machine.postgres}, fsync ${machine.fsync}\n${events.toLocaleString('en')} events, ${result.size}\n${table.toString()}\n`,
  );
} finally {
  await server.stop();
}
