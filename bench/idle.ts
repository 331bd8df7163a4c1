import pg from 'pg';
import { bootApp, handlerOf } from './app.js';
import { type Bench, type Line, line, pause } from './figures.js';
import { type BenchServer, openServer, withClient, withDatabase } from './server.js';

/** After the boot: a session that fell idle reports its transactions 10 s late, and the boot's must not be counted. */
const settleMs = 11_000;

interface Counts {
  readonly messages: number;
  readonly transactions: number;
  /** `undefined` where pg_stat_statements is not to be had. */
  readonly statements: number | undefined;
}

/**
 * What an app with two durables asks of the database while nothing happens, beside a hand-written worker that polls one
 * table once a second. One run: the window is an average already.
 */
export async function measureIdle(bench: Bench): Promise<Line[]> {
  const ms = (bench.options.seconds ?? 10) * 1_000;
  // A server of its own: the other figures are taken with stock settings.
  const server = await openServer({ shared_preload_libraries: 'pg_stat_statements' });
  try {
    bench.note(`idle: ${ms / 1_000} s of the library, ${ms / 1_000} s of a plain poll`);
    const ours = await withDatabase(server, (url) => idleApp(server, url, ms));
    const plain = await withDatabase(server, (url) => plainPoll(server, url, ms));
    return (['messages', 'transactions', 'statements'] as const).flatMap((what) => {
      const [a, b] = [ours[what], plain[what]];
      if (a === undefined || b === undefined) return [];
      return [
        line({
          measurement: 'idle',
          what: `idle, two durables: ${what}`,
          unit: '/s',
          better: 'less',
          ours: a,
          plain: b,
        }),
      ];
    });
  } finally {
    await server.stop();
  }
}

async function idleApp(server: BenchServer, url: string, ms: number): Promise<Counts> {
  const app = await bootApp({
    url,
    providers: [handlerOf('first', () => undefined), handlerOf('second', () => undefined)],
  });
  try {
    await pause(settleMs);
    return await counted(server, url, ms);
  } finally {
    await app.close();
  }
}

async function plainPoll(server: BenchServer, url: string, ms: number): Promise<Counts> {
  return withClient(url, async (client) => {
    const poll = () =>
      client.query('SELECT id FROM plain_outbox ORDER BY created_at LIMIT 100 FOR UPDATE SKIP LOCKED').catch(() => {});
    const timer = setInterval(() => void poll(), 1_000);
    try {
      return await counted(server, url, ms);
    } finally {
      clearInterval(timer);
    }
  });
}

/** Counts from outside the database in question, so that counting is not counted. */
async function counted(server: BenchServer, url: string, ms: number): Promise<Counts> {
  return withClient(server.url, async (client) => {
    const database = new URL(url).pathname.slice(1);
    const statements = await canCountStatements(client);
    const read = async () => {
      const { rows } = await client.query<{ transactions: number; statements: number }>(
        `SELECT (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1)::int AS transactions, ${
          statements
            ? '(SELECT coalesce(sum(s.calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1)::int'
            : '0'
        } AS statements`,
        [database],
      );
      return rows[0] ?? { transactions: 0, statements: 0 };
    };
    const before = await read();
    const stop = countMessages();
    await pause(ms);
    const messages = stop();
    const after = await read();
    const perSecond = (n: number): number => (n * 1_000) / ms;
    return {
      messages: perSecond(messages),
      transactions: perSecond(after.transactions - before.transactions),
      statements: statements ? perSecond(after.statements - before.statements) : undefined,
    };
  });
}

async function canCountStatements(client: pg.Client): Promise<boolean> {
  try {
    await client.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements');
    await client.query('SELECT FROM pg_stat_statements LIMIT 1');
    return true;
  } catch {
    return false;
  }
}

/** Round trips of this process: a message ends in a Sync or is a simple query. Returns the function that ends the count. */
function countMessages(): () => number {
  const prototype = pg.Connection.prototype;
  const { sync, query } = prototype;
  let count = 0;
  prototype.sync = function (this: pg.Connection) {
    count += 1;
    return sync.call(this);
  };
  prototype.query = function (this: pg.Connection, text: string) {
    count += 1;
    return query.call(this, text);
  };
  return () => {
    prototype.sync = sync;
    prototype.query = query;
    return count;
  };
}
