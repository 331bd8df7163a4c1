import type { EntityManager, QueryRunner } from 'typeorm';
import { NotInTransactionError, TransactionFinishedError } from '../outbox.errors.js';
import type { OutboxSettings } from '../outbox.options.js';
import { clientOf, type Database } from '../tables/database.js';
import { sendOne } from '../tables/wire/batch.js';
import type { CommitWatcher } from '../transactions/commit-watcher.js';
import type { RunnerQueue } from '../transactions/runner-queue.js';
import type { TransactionFollower } from '../transactions/transaction-follower.js';
import { EventPublisher, type OutgoingEvent, type Published, type PublishOptions } from './event-publisher.js';
import { type EventRow, eventRow } from './outgoing-event.js';

/** What a publisher stands on; shared by the injected one and those that `with` returns. */
export interface PublisherParts {
  readonly database: Database;
  readonly settings: OutboxSettings;
  readonly follower: TransactionFollower;
  readonly commits: CommitWatcher;
  readonly runners: RunnerQueue;
}

/** The real publisher: checks everything first, then one statement on the transaction's own connection. */
export class OutboxPublisher extends EventPublisher {
  constructor(
    private readonly parts: PublisherParts,
    /** The explicit transaction of `with`; otherwise the current one. */
    private readonly explicit?: QueryRunner,
  ) {
    super();
  }

  async publish(event: string, payload: unknown, options: PublishOptions = {}): Promise<Published> {
    return this.one(this.row({ ...options, event, payload }));
  }

  async publishFor(
    tenantId: string,
    event: string,
    payload: unknown,
    options: PublishOptions = {},
  ): Promise<Published> {
    return this.one(this.row({ ...options, event, payload, tenantId }));
  }

  async publishMany(events: readonly OutgoingEvent[]): Promise<Published[]> {
    const rows = events.map((event) => this.row(event));
    if (rows.length === 0) return [];
    return this.inTransaction(`the publishing of ${rows.length} events`, rows[0]?.type ?? '', (runner) =>
      this.insert(runner, rows),
    );
  }

  async publishNow(
    event: string,
    payload: unknown,
    options: PublishOptions & { tenantId?: string } = {},
  ): Promise<Published> {
    const row = this.row({ ...options, event, payload });
    const runner = this.parts.database.dataSource.createQueryRunner('master');
    try {
      const published = await this.insertOne(runner, row);
      // A statement outside a transaction block has committed when it answers.
      this.parts.commits.committed(runner);
      return published;
    } finally {
      await runner.release();
    }
  }

  with(transaction: EntityManager | QueryRunner): EventPublisher {
    const runner = 'startTransaction' in transaction ? transaction : transaction.queryRunner;
    if (!runner?.isTransactionActive) throw new NotInTransactionError('with(…)');
    return new OutboxPublisher(this.parts, runner);
  }

  private one(row: EventRow): Promise<Published> {
    return this.inTransaction(`the publishing of '${row.type}'`, row.type, (runner) => this.insertOne(runner, row));
  }

  private row(event: OutgoingEvent): EventRow {
    const { settings } = this.parts;
    return eventRow(event, event.tenantId ?? settings.currentTenant() ?? null, settings.maxEventBytes);
  }

  private async inTransaction<T>(what: string, type: string, insert: (runner: QueryRunner) => Promise<T>): Promise<T> {
    const { follower, runners } = this.parts;
    if (this.explicit) {
      const runner = this.explicit;
      if (!runner.isTransactionActive) throw new TransactionFinishedError(what);
      return runners.run(runner, () => insert(runner));
    }
    const scope = follower.current();
    if (!scope) throw new NotInTransactionError(type);
    return scope.take(what, () => runners.run(scope.runner, () => insert(scope.runner)));
  }

  /** Nine publishes of ten need no delay: the short statement plans and runs in half the time. */
  private async insertOne(runner: QueryRunner, row: EventRow): Promise<Published> {
    if (row.delay !== null || row.runAt !== null) return only(await this.insert(runner, [row]));
    const { database, commits } = this.parts;
    const statement = database.events.publishOne(row.tenant, row.type, row.subject, row.payload, row.headers);
    const { rows } = await sendOne(await clientOf(runner), statement);
    commits.note(runner);
    return { id: only(rows).id, duplicate: false };
  }

  private async insert(runner: QueryRunner, rows: readonly EventRow[]): Promise<Published[]> {
    const { database, commits } = this.parts;
    const column = <K extends keyof EventRow>(key: K) => rows.map((row) => row[key]);
    const none = rows.map(() => null);
    const statement = database.events.publishMany(
      column('tenant'),
      column('type'),
      column('subject'),
      column('payload'),
      column('headers'),
      none,
      none,
      column('delay'),
      column('runAt'),
    );
    const published = await sendOne(await clientOf(runner), statement);
    commits.note(runner);
    return [...published.rows];
  }
}

function only<T>(rows: readonly T[]): T {
  const [row] = rows;
  if (row === undefined) throw new Error('the publishing statement returned no row');
  return row;
}
