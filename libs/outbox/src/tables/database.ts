import { Client, type Pool, type PoolClient, type PoolConfig } from 'pg';
import type { DataSource, QueryRunner } from 'typeorm';
import type { Log } from '../core/throttled-log.js';
import { UnsupportedDriverError } from '../outbox.errors.js';
import { ActionsTable } from './actions.table.js';
import { CancellingTable } from './cancelling.table.js';
import { DeadLettersTable } from './dead-letters.table.js';
import { DeliveriesTable } from './deliveries.table.js';
import { DurablesTable } from './durables.table.js';
import { EventsTable } from './events.table.js';
import { ExplainTable } from './explain.table.js';
import { HandledTable } from './handled.table.js';
import { HealthTable } from './health.table.js';
import { type ConnectionHooks, type ConnectionPath, InfrastructureConnection } from './infrastructure-connection.js';
import { InspectEventTable } from './inspect-event.table.js';
import { InspectListTable } from './inspect-list.table.js';
import { InspectOverviewTable } from './inspect-overview.table.js';
import { JobTenantsTable } from './job-tenants.table.js';
import { JobsTable } from './jobs.table.js';
import { PausesTable } from './pauses.table.js';
import { PeriodicTable } from './periodic.table.js';
import { QueueTable } from './queue.table.js';
import { ReconcileTable } from './reconcile.table.js';
import { RetentionTable } from './retention.table.js';
import { lockKeys } from './schema/schema-name.js';
import { ServerFacts } from './server-facts.js';
import { WaitsTable } from './waits.table.js';
import { type BatchResults, sendBatch, useNames } from './wire/batch.js';
import { commit, rollback, snapshot } from './wire/control.js';
import { type Bound, type Statement, statement } from './wire/statement.js';
import { WorkersTable } from './workers.table.js';

/** How the application's pool gets to the server. */
export interface PoolTraits {
  /** Through a transaction pooler: one connection's transactions run in several sessions. */
  readonly moves: boolean;
  /** Prepared statements work. */
  readonly prepared: boolean;
}

/** Connections of the pool that handlers and jobs leave to everything else, or two of them could wait for each other for ever. */
export const poolReserve = 2;

const listen = (client: PoolClient): void => {
  client.on('error', () => {});
};

/** The application's DataSource as the library sees it: its tables under the configured schema, and ways to reach them. */
export class Database {
  readonly events: EventsTable;
  readonly queue: QueueTable;
  readonly deliveries: DeliveriesTable;
  readonly handled: HandledTable;
  readonly cancelling: CancellingTable;
  readonly deadLetters: DeadLettersTable;
  readonly durables: DurablesTable;
  readonly workers: WorkersTable;
  readonly jobs: JobsTable;
  readonly jobTenants: JobTenantsTable;
  readonly periodic: PeriodicTable;
  readonly retention: RetentionTable;
  readonly reconcile: ReconcileTable;
  readonly health: HealthTable;
  readonly inspectList: InspectListTable;
  readonly inspectEvent: InspectEventTable;
  readonly inspectOverview: InspectOverviewTable;
  readonly pauses: PausesTable;
  readonly actions: ActionsTable;
  readonly explain: ExplainTable;
  readonly waits: WaitsTable;
  readonly facts: ServerFacts;

  /** What the boot gate found out about the application's connections; what is published before uses no names. */
  pool: PoolTraits = { moves: false, prepared: false };

  /** Changes nothing; takes the place of a record where none is due. */
  readonly nothing = statement('nothing', 'SELECT 1 WHERE false');
  /** NOTIFY for whoever listens on this outbox's channel. Parameters: what is new. */
  readonly notify: Statement;
  private readonly reading = statement(
    'reading',
    `SELECT ${['enable_seqscan', 'enable_bitmapscan', 'jit'].map((name) => `set_config('${name}', 'off', true)`).join(', ')}, set_config('max_parallel_workers_per_gather', '0', true), set_config('statement_timeout', '10000', true)`,
  );
  /** Parameters: the pid of a backend. */
  readonly terminate = statement('terminate', 'SELECT pg_terminate_backend($1::int)');

  constructor(
    readonly dataSource: DataSource,
    readonly schema: string,
    readonly infrastructureUrl?: string,
  ) {
    const keys = lockKeys(schema);
    this.events = new EventsTable(schema);
    this.queue = new QueueTable(schema, keys);
    this.deliveries = new DeliveriesTable(schema);
    this.handled = new HandledTable(schema);
    this.cancelling = new CancellingTable(schema, this.channel);
    this.deadLetters = new DeadLettersTable(schema);
    this.durables = new DurablesTable(schema, keys);
    this.workers = new WorkersTable(schema, keys);
    this.jobs = new JobsTable(schema, keys);
    this.jobTenants = new JobTenantsTable(schema);
    this.periodic = new PeriodicTable(schema, keys);
    this.retention = new RetentionTable(schema);
    this.reconcile = new ReconcileTable(schema);
    this.health = new HealthTable(schema, keys);
    this.inspectList = new InspectListTable(schema);
    this.inspectEvent = new InspectEventTable(schema);
    this.inspectOverview = new InspectOverviewTable(schema);
    this.pauses = new PausesTable(schema);
    this.actions = new ActionsTable(schema);
    this.explain = new ExplainTable(schema);
    this.waits = new WaitsTable(schema);
    this.notify = statement('notify', `SELECT pg_notify('${this.channel}', $1::text)`);
    this.facts = new ServerFacts(schema);
  }

  /** The channel of this outbox's NOTIFY. */
  get channel(): string {
    return `${this.schema}_wake`;
  }

  /** How many connections the application's pool may open. */
  get poolMax(): number {
    return this.poolOptions().max ?? 10;
  }

  /** A connection of the library's own, to the same database or to the URL given for infrastructure. */
  infrastructure(
    purpose: string,
    log: Log,
    settings: readonly string[] = [],
    hooks?: ConnectionHooks,
  ): InfrastructureConnection {
    return new InfrastructureConnection(purpose, () => this.infrastructurePath(purpose), log, settings, hooks);
  }

  /**
   * The node-postgres client inside a TypeORM runner, on which named statements can be sent: prepared they cost half of
   * what `runner.query` costs. pg-native has no such protocol and is refused.
   */
  async clientOf(runner: QueryRunner): Promise<PoolClient> {
    const client: PoolClient & { connection?: { parsedStatements?: object } } = await runner.connect();
    if (client.connection?.parsedStatements === undefined) {
      throw new UnsupportedDriverError(
        'the DataSource does not use the JavaScript client of node-postgres (pg-native, or another driver); remove pg-native or set `driver` to the pg package',
      );
    }
    useNames(client, this.pool.prepared);
    return client;
  }

  /**
   * A session that the server ends right after its start (an operator, a failover) may say so in the same packet:
   * pg-pool has stopped listening to that connection then, TypeORM begins a microtask later, and an error event that
   * nobody listens to ends the process.
   */
  bearEndedSessions(): void {
    const pool = this.applicationPool();
    // The DataSource may outlive this app and serve the next one.
    if (!pool.listeners('connect').includes(listen)) pool.on('connect', listen);
  }

  /** A connection as the infrastructure's, for the boot gate to look at before anything relies on it. */
  probe(): Client {
    const { pooled: _, ...config } = this.infrastructurePath('boot');
    return new Client(config);
  }

  /** Sends statements as one message on a connection of the application's pool, outside any transaction of its own. */
  async onPool<const S extends readonly Bound[]>(...statements: S): Promise<BatchResults<S>> {
    const runner = this.dataSource.createQueryRunner('master');
    try {
      return await sendBatch(await this.clientOf(runner), statements);
    } finally {
      await runner.release();
    }
  }

  /**
   * The same of one snapshot, so that what moves on meanwhile is seen in one place, by index alone: statements that were
   * planned on empty tables would read full ones to their end. Reads only, takes no lock, and ends within ten seconds.
   */
  async snapshot<const S extends readonly Bound[]>(...statements: S): Promise<BatchResults<S>> {
    const runner = this.dataSource.createQueryRunner('master');
    try {
      const client = await this.clientOf(runner);
      try {
        const [, , ...answers] = await sendBatch(client, [snapshot, this.reading(), ...statements, commit]);
        answers.pop();
        return answers as unknown as BatchResults<S>;
      } catch (error) {
        await sendBatch(client, [rollback]).catch(() => {});
        throw error;
      }
    } finally {
      await runner.release();
    }
  }

  private infrastructurePath(purpose: string): ConnectionPath {
    const keepalive = {
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
      application_name: `nestjs-outbox ${purpose}`,
    };
    if (this.infrastructureUrl !== undefined) return { connectionString: this.infrastructureUrl, ...keepalive };
    const { connectionString, host, port, user, database, ssl, options } = this.poolOptions();
    // pg-pool hides the password from enumeration, so a spread would lose it.
    const { password } = this.poolOptions();
    return {
      connectionString,
      host,
      port,
      user,
      password,
      database,
      ssl,
      options,
      ...keepalive,
      pooled: this.pool.moves,
    };
  }

  private poolOptions(): PoolConfig {
    return this.applicationPool().options;
  }

  private applicationPool(): Pool {
    const pool = (this.dataSource.driver as unknown as { master?: Pool }).master;
    if (pool?.options === undefined) {
      throw new UnsupportedDriverError(
        `the DataSource (type '${this.dataSource.options.type}') has no node-postgres pool; nestjs-outbox needs an initialized DataSource of type 'postgres'`,
      );
    }
    return pool;
  }
}
