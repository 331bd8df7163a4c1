import { afterAll, beforeAll } from '@jest/globals';
import type { Provider } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe, type SubscribeOptions } from 'nestjs-outbox';
import { eventually, reaches } from './eventually.js';
import { bootApp, type TestApp, type TestAppOptions } from './test-app.js';
import { createDatabase, type TestDatabase } from './test-database.js';

export { job } from './job.js';

/** Where handlers leave what they did; the columns that a test does not need stay empty. */
const effectsTable = `CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, event_id uuid, durable text, attempt int,
  app text, note text)`;

/** A claim that was refused for a moment, as on a busy machine, is tried again within this time. */
const busyFor = '5 seconds';

/** One database for one `describe`, and the apps booted on it. */
export interface Stage {
  readonly database: TestDatabase;
  /** Boots an app that is closed after the last test, unless the test closes it. */
  boot(options?: Omit<TestAppOptions, 'url'> & { readonly url?: string }): Promise<TestApp>;
  /** Waits until nothing is queued and no delivery is due or leased, or was busy for a moment. */
  settled(schema?: string): Promise<void>;
  /** Waits until nothing is queued or waits for anything, retries included; of one durable alone when it is named. */
  drained(durable?: string): Promise<void>;
}

/**
 * Registers the hooks of a `describe`: a database with the table `effects` and what `setup` adds; afterwards the apps
 * are closed, and whatever they left on the server fails the suite.
 */
export function useStage(...setup: readonly string[]): Stage {
  let database: TestDatabase | undefined;
  const apps: TestApp[] = [];
  const stage: Stage = {
    get database() {
      if (!database) throw new Error('the database is there from beforeAll on');
      return database;
    },
    boot: async (options = {}) => {
      const app = await bootApp({ url: stage.database.url, ...options });
      apps.push(app);
      return app;
    },
    settled: async (schema = 'outbox') => {
      // Not now(): that is before the snapshot, and what another relay did between the two would count as later.
      const sql = `SELECT ((SELECT count(*) FROM ${schema}.queue WHERE due_at <= clock_timestamp())
        + (SELECT count(*) FROM ${schema}.deliveries WHERE lease IS NOT NULL OR due_at <= clock_timestamp()
          OR (attempt = 0 AND snoozes = 0 AND due_at <= clock_timestamp() + interval '${busyFor}')))::int`;
      await reaches('what is due and not handled', 0, () => stage.database.value<number>(sql));
    },
    drained: async (durable) => {
      const sql = `SELECT ((SELECT count(*) FROM outbox.queue) + (SELECT count(*) FROM outbox.deliveries d
        JOIN outbox.durables n ON n.id = d.durable WHERE $1::text IS NULL OR n.name = $1))::int`;
      await reaches('rows of the queue and the deliveries', 0, () =>
        stage.database.value<number>(sql, [durable ?? null]),
      );
    },
  };
  beforeAll(async () => {
    database = await createDatabase();
    for (const sql of [effectsTable, ...setup]) await database.query(sql);
  });
  afterAll(async () => {
    for (const app of apps) await app.close();
    if (!database) return;
    try {
      await nothingIsLeft(database);
    } finally {
      await database.drop();
    }
  });
  return stage;
}

/** After its apps were closed: no lock of the library, no connection of it, and no session with a transaction open. */
export async function nothingIsLeft(database: TestDatabase): Promise<void> {
  let left: unknown[] = [];
  await eventually('the apps leave nothing behind', async () => {
    left = await database.query(`
      SELECT 'advisory lock' AS what, l.pid, l.classid::text AS detail FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      UNION ALL
      SELECT state, pid, application_name || ': ' || query FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
          AND (state LIKE 'idle in transaction%' OR application_name LIKE 'nestjs-outbox%')`);
    if (left.length > 0) throw new Error(`left behind: ${JSON.stringify(left)}`);
    return true;
  });
}

export type Run<P> = (event: OutboxEvent<P>, context: DeliveryContext) => unknown;

/** A provider with one subscription, for handlers that a test wants to see from inside. */
export function subscriber<P>(event: string, durable: string, run: Run<P>, options: SubscribeOptions = {}): Provider {
  class Subscriber {
    handle(given: OutboxEvent<P>, context: DeliveryContext): unknown {
      return run(given, context);
    }
  }
  const method = Object.getOwnPropertyDescriptor(Subscriber.prototype, 'handle') as TypedPropertyDescriptor<Run<never>>;
  Subscribe(event, durable, options)(Subscriber.prototype, 'handle', method);
  return Subscriber;
}

/** Writes one effect through the handler's transaction. */
export async function effect(event: OutboxEvent, context: DeliveryContext, note = '', app = ''): Promise<void> {
  await context.manager.query(
    'INSERT INTO effects (event_id, durable, attempt, note, app) VALUES ($1, $2, $3, $4, $5)',
    [event.id, context.durable, context.attempt, note, app],
  );
}
