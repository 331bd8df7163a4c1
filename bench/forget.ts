import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import type { Client } from 'pg';
import { type BenchApp, bootApp, handlerOf, orderPlaced, payloadOf } from './app.js';
import { placeOrder, writeEffect } from './baseline.js';
import { percentile } from './figures.js';
import { describeMachine } from './machine.js';
import { type BenchServer, openServer, withClient, withDatabase } from './server.js';
import { Stopwatch, steadily, type Timed } from './steady.js';

/**
 * Forgets a day while events are published and handled at a steady rate: how long the two transactions take, and what
 * becomes of the rate and the latency before, while and after they run. Its own script, because filling the day takes a
 * minute; the statements are those of the job, with the settings of its connection.
 */
const { values: given } = parseArgs({
  options: {
    events: { type: 'string', default: '2000000' },
    survivors: { type: 'string', default: '1000' },
    'per-second': { type: 'string', default: '100' },
    seconds: { type: 'string', default: '15' },
    json: { type: 'boolean', default: false },
  },
});
const [events, survivors, perSecond, seconds] = [given.events, given.survivors, given['per-second'], given.seconds].map(
  Number,
) as [number, number, number, number];

const daysAgo = 8;
const dayStart = `date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'`;

/** How long a reader of one table waits at most, from 2 ms to 2 ms: what is felt of a lock on it. */
class Reader {
  private worst = 0;
  private open = true;
  private readonly done: Promise<void>;

  constructor(
    private readonly client: Client,
    private readonly table: string,
  ) {
    this.done = this.loop();
  }

  async stop(): Promise<number> {
    this.open = false;
    await this.done;
    return this.worst;
  }

  private async loop(): Promise<void> {
    while (this.open) {
      const asked = performance.now();
      await this.client.query(`SELECT FROM ${this.table} LIMIT 1`);
      this.worst = Math.max(this.worst, performance.now() - asked);
      await pause(2);
    }
  }
}

interface Step {
  readonly from: number;
  readonly to: number;
  readonly ms: number;
  readonly tries: number;
  readonly kept: number;
  /** The longest wait of a reader of the table meanwhile. */
  readonly felt: number;
}

/** One transaction of the purge, tried again while its lock is taken, as the job does. */
async function forget(client: Client, url: string, table: string, call: string): Promise<Step> {
  return withClient(url, async (other) => {
    const reader = new Reader(other, table);
    await pause(500);
    const step = await tried(client, call).finally(() => reader.stop());
    return { ...step, felt: await reader.stop() };
  });
}

async function tried(client: Client, call: string): Promise<Omit<Step, 'felt'>> {
  for (let tries = 1; ; tries++) {
    const from = performance.now();
    try {
      const { rows } = await client.query<{ kept: number }>(`SELECT kept FROM outbox.${call}`);
      const to = performance.now();
      return { from, to, ms: to - from, tries, kept: rows[0]?.kept ?? 0 };
    } catch (error) {
      if ((error as { code?: string }).code !== '55P03') throw error;
      await pause(500 + Math.random() * 1_500);
    }
  }
}

/** A day of events of about 200 bytes, both durables done with all but the survivors, which wait on their ladder. */
async function fill(client: Client): Promise<string> {
  await client.query(
    `INSERT INTO outbox.events (bucket, id, type, payload, created_at)
     SELECT outbox.bucket(id), id, $1, jsonb_build_object('orderId', n, 'customer', 'customer-' || n % 1000, 'note', repeat(md5(n::text), 4)), at
     FROM (SELECT n, at, outbox.uuid7(at) AS id FROM generate_series(1, $2::int) n,
       LATERAL (SELECT ${dayStart} - interval '${daysAgo} days' + n * interval '86399 seconds' / $2::int AS at) t) x`,
    [orderPlaced, events],
  );
  await client.query(
    `INSERT INTO outbox.handled (bucket, event_id, durable, verdict) SELECT e.bucket, e.id, d.id, 'd' FROM outbox.events e, outbox.durables d`,
  );
  await client.query(
    `WITH s AS (SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM outbox.events) x WHERE n % greatest($1::int / $2::int, 1) = 0 LIMIT $2::int),
     w AS (INSERT INTO outbox.deliveries (event_id, durable, due_at, attempt) SELECT s.id, (SELECT max(id) FROM outbox.durables), now() + interval '1 day', 3 FROM s)
     DELETE FROM outbox.handled h USING s WHERE h.event_id = s.id AND h.durable = (SELECT max(id) FROM outbox.durables)`,
    [events, survivors],
  );
  // As a day has been for long: analyzed, written out. The autovacuum that follows a load would take part in the figures.
  await client.query('VACUUM ANALYZE outbox.deliveries');
  await client.query('VACUUM ANALYZE outbox.events');
  await client.query('VACUUM ANALYZE outbox.handled');
  await client.query('CHECKPOINT');
  const { rows } = await client.query<{ size: string }>(
    `SELECT pg_size_pretty(sum(pg_total_relation_size(c.oid))) AS size FROM pg_class c
     WHERE c.relnamespace = 'outbox'::regnamespace AND c.relispartition AND c.relkind = 'r'`,
  );
  return rows[0]?.size ?? '';
}

const note = (text: string): void => void process.stderr.write(`${text}\n`);

interface Phase {
  readonly name: string;
  readonly seconds: number;
  readonly handled: number;
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
  readonly worst: number;
}

/** What was committed between two moments. */
function phase(name: string, timed: readonly Timed[], from: number, to: number): Phase {
  const waits = timed.filter(({ committed }) => committed >= from && committed < to).map(({ wait }) => wait);
  const length = (to - from) / 1_000;
  const [p50, p99, worst] = [50, 99, 100].map((percent) => percentile(waits, percent)) as [number, number, number];
  return { name, seconds: length, handled: waits.length, perSecond: waits.length / length, p50, p99, worst };
}

async function measure(url: string) {
  const watch = new Stopwatch();
  const providers = [
    handlerOf('effects', (event, ctx) => {
      watch.started(event.id);
      return writeEffect(ctx.manager, event.id);
    }),
    handlerOf('audit', (event, ctx) => writeEffect(ctx.manager, event.id)),
  ];
  // The two transactions one by one, and not the job's own pass.
  const retention = { schedule: '0 0 29 2 *' };
  const app = await bootApp({ url, providers, outbox: { handlers: { concurrency: 4 }, retention } });
  try {
    return await withClient(url, (client) => beside(app, url, watch, client));
  } finally {
    await app.close();
  }
}

async function beside(app: BenchApp, url: string, watch: Stopwatch, client: Client) {
  note(`filling a day with ${events.toLocaleString('en')} events`);
  const size = await fill(client);
  await client.query('SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off');
  note(`${size}; publishing ${perSecond} a second`);
  let open = true;
  const publishing = steadily(
    perSecond,
    () => open,
    async (n) => {
      const { id } = await app.dataSource.transaction(async (manager) => {
        await placeOrder(manager, n);
        return app.publisher.publish(orderPlaced, payloadOf(n));
      });
      watch.committed(id);
    },
  );
  await pause(3_000);
  const begun = performance.now();
  await pause(seconds * 1_000);
  const { rows } = await client.query<{ bucket: number }>(
    `SELECT outbox.bucket(id) AS bucket FROM outbox.events WHERE id < outbox.uuid7_floor(now() - interval '2 days') LIMIT 1`,
  );
  const bucket = rows[0]?.bucket ?? 0;
  const eventsStep = await forget(
    client,
    url,
    `outbox.events_${bucket}`,
    `forget_events(${bucket}, ${dayStart} - interval '7 days')`,
  );
  const marksStep = await forget(client, url, `outbox.handled_${bucket}`, `forget_marks(${bucket})`);
  await pause(seconds * 1_000);
  const ended = performance.now();
  open = false;
  await publishing;
  const timed = await watch.all();
  // A second from the first lock on, or longer if they took longer: shorter ones hold too few events to say anything.
  const until = Math.max(marksStep.to, eventsStep.from + 1_000);
  const left = await client.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM outbox.events WHERE id < outbox.uuid7_floor(now() - interval '2 days')`,
  );
  if (left.rows[0]?.n !== survivors) throw new Error(`${left.rows[0]?.n} events survived, not ${survivors}`);
  return {
    size,
    events: eventsStep,
    marks: marksStep,
    phases: [
      phase('before', timed, begun, eventsStep.from),
      phase('during', timed, eventsStep.from, until),
      phase('after', timed, until, ended),
    ],
  };
}

function print(result: Awaited<ReturnType<typeof measure>>): string {
  const table = new Table({
    head: ['', 'seconds', 'events', 'a second', 'p50 ms', 'p99 ms', 'worst ms'],
    style: { head: [], border: [], compact: true },
  });
  for (const { name, ...figures } of result.phases)
    table.push([
      name,
      ...[figures.seconds, figures.handled, figures.perSecond, figures.p50, figures.p99, figures.worst].map((n) =>
        n.toFixed(n >= 100 ? 0 : 2),
      ),
    ]);
  const step = ({ ms, tries, kept, felt }: Step): string =>
    `${ms.toFixed(0)} ms (${tries} ${tries === 1 ? 'try' : 'tries'}, ${kept} kept, a reader of the table waited ${felt.toFixed(0)} ms)`;
  return `${result.size} forgotten: events ${step(result.events)}, marks ${step(result.marks)}\nfrom the resolved commit to the first line of the handler:\n${table.toString()}`;
}

const server: BenchServer = await openServer();
try {
  const machine = await describeMachine(server);
  const result = await withDatabase(server, measure);
  process.stdout.write(
    given.json
      ? `${JSON.stringify({ machine, ...result })}\n`
      : `${machine.date} · ${machine.cores} cores (${machine.processor}) · Node ${machine.node} · Postgres ${machine.postgres}, fsync ${machine.fsync}\n${print(result)}\n`,
  );
} finally {
  await server.stop();
}
