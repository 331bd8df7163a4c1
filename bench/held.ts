import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import type { Client } from 'pg';
import { bootApp, handlerOf, orderPlaced, payloadOf } from './app.js';
import { placeOrder, writeEffect } from './baseline.js';
import { describeMachine } from './machine.js';
import { openServer, withClient, withDatabase } from './server.js';
import { steadily } from './steady.js';

/**
 * A snapshot that is held keeps vacuum from every dead row: what a poll reads then grows with all that was ever in its
 * table, unless it begins beyond it. One REPEATABLE READ transaction stays open while events are published and handled at
 * a steady rate; the server's own times of the polling statements at the end are put beside those of before.
 */
const { values: given } = parseArgs({
  options: {
    minutes: { type: 'string', default: '5' },
    'per-second': { type: 'string', default: '500' },
    json: { type: 'boolean', default: false },
  },
});
const perSecond = Number(given['per-second']);
const heldMs = Number(given.minutes) * 60_000;
/** How long each of the two windows is that are compared. */
const windowMs = Math.min(30_000, heldMs / 2);

/** What a statement's text contains, and how it is called. */
const watched = {
  'fan-out': 'INSERT INTO outbox.deliveries (event_id, durable, lease)',
  take: 'SELECT d.tid FROM unnest($1::smallint[], $2::int[]) w(durable, free)',
  claim: 'outbox.claim_',
  sweep: 'pg_try_advisory_xact_lock(',
} as const;
type Watched = keyof typeof watched;

/** Mean milliseconds of each statement since the last reset, and how often it ran. */
async function times(client: Client): Promise<Map<Watched, { ms: number; calls: number }>> {
  const found = new Map<Watched, { ms: number; calls: number }>();
  for (const [name, text] of Object.entries(watched) as [Watched, string][]) {
    const { rows } = await client.query<{ ms: number; calls: number }>(
      `SELECT (sum(total_exec_time) / sum(calls))::float8 AS ms, sum(calls)::int AS calls FROM pg_stat_statements
       WHERE position($1 IN query) > 0 AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE 'CREATE%'`,
      [text],
    );
    if (rows[0]?.calls) found.set(name, rows[0]);
  }
  return found;
}

const server = await openServer({ shared_preload_libraries: 'pg_stat_statements', 'pg_stat_statements.track': 'top' });
try {
  await withDatabase(server, async (url) => {
    const machine = await describeMachine(server);
    const app = await bootApp({
      url,
      providers: [handlerOf('first', (event, ctx) => writeEffect(ctx.manager, event.id))],
    });
    await withClient(url, async (client) => {
      await client.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements');
      let going = true;
      const publishing = steadily(
        perSecond,
        () => going,
        (n) =>
          app.dataSource.transaction(async (manager) => {
            await placeOrder(manager, n);
            await app.publisher.publish(orderPlaced, payloadOf(n));
          }),
      );
      const measured = async (): Promise<Map<Watched, { ms: number; calls: number }>> => {
        await client.query('SELECT pg_stat_statements_reset()');
        await pause(windowMs);
        return times(client);
      };
      await pause(5_000);
      const before = await measured();
      const after = await withClient(url, async (holder) => {
        await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
        await holder.query('SELECT count(*) FROM outbox.queue');
        await pause(heldMs - windowMs);
        return measured();
      });
      going = false;
      await publishing;
      const { rows } = await client.query<{ dead: number }>(
        "SELECT n_dead_tup::int AS dead FROM pg_stat_user_tables WHERE relname = 'queue'",
      );
      report(machine, before, after, rows[0]?.dead ?? 0);
    });
    await app.close();
  });
} finally {
  await server.stop();
}

function report(
  machine: object,
  before: Map<Watched, { ms: number; calls: number }>,
  after: Map<Watched, { ms: number; calls: number }>,
  deadQueueRows: number,
): void {
  const lines = [...before].map(([statement, { ms, calls }]) => {
    const held = after.get(statement);
    return { statement, calls, before: ms, held: held?.ms ?? Number.NaN, ratio: (held?.ms ?? Number.NaN) / ms };
  });
  if (given.json) {
    process.stdout.write(`${JSON.stringify({ machine, perSecond, heldMs, deadQueueRows, lines })}\n`);
    return;
  }
  const table = new Table({
    head: ['statement', 'ratio', 'held, ms', 'before, ms', 'calls before'],
    style: { head: [], border: [], compact: true },
  });
  for (const { statement, ratio, held, before: ms, calls } of lines)
    table.push([statement, ratio.toFixed(2), held.toFixed(3), ms.toFixed(3), calls]);
  process.stdout.write(
    `a snapshot held for ${heldMs / 60_000} min at ${perSecond} events/s; ${deadQueueRows} dead rows in the queue at its end\n${table.toString()}\n`,
  );
}
