import type { EntityManager, QueryRunner } from 'typeorm';
import type { Cancelled } from '../core/cancelled.js';
import { InvalidEventError, NotInTransactionError, TransactionFinishedError } from '../outbox.errors.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { Database } from '../tables/database.js';
import { type BatchResult, sendOne } from '../tables/wire/batch.js';
import type { Bound } from '../tables/wire/statement.js';
import type { CommitWatcher } from '../transactions/commit-watcher.js';
import type { RunnerQueue } from '../transactions/runner-queue.js';
import type { TransactionFollower } from '../transactions/transaction-follower.js';
import { boundCancel } from './cancel-target.js';
import {
  type CancelTarget,
  EventPublisher,
  type OutgoingEvent,
  type Published,
  type PublishOptions,
} from './event-publisher.js';
import { type EventRef, typeOf } from './event-ref.js';
import type { KnownEvents } from './known-events.js';
import { type EventRow, eventRow } from './outgoing-event.js';
import { checkPayload } from './payload-check.js';

/** What a publisher stands on; shared by the injected one and those that `with` returns. */
export interface PublisherParts {
  readonly database: Database;
  readonly settings: OutboxSettings;
  readonly follower: TransactionFollower;
  readonly commits: CommitWatcher;
  readonly runners: RunnerQueue;
  /** Definitions from the manifests: a name is checked against the same schema as its definition. */
  readonly known: KnownEvents;
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

  async publish(event: EventRef, payload: unknown, options: PublishOptions = {}): Promise<Published> {
    return this.one({ ...options, event, payload });
  }

  async publishFor(
    tenantId: string,
    event: EventRef,
    payload: unknown,
    options: PublishOptions = {},
  ): Promise<Published> {
    return this.one({ ...options, event, payload, tenantId });
  }

  async publishMany(events: readonly OutgoingEvent[]): Promise<Published[]> {
    const rows = events.map((event) => this.row(event));
    const [first] = rows;
    if (!first) return [];
    const what = `the publishing of ${rows.length} events`;
    return this.inTransaction(what, outside(first), async (runner, what) => {
      for (const event of events) await this.checkSchema(event);
      return this.insert(runner, rows, what);
    });
  }

  async publishNow(
    event: EventRef,
    payload: unknown,
    options: PublishOptions & { tenantId?: string } = {},
  ): Promise<Published> {
    const outgoing = { ...options, event, payload };
    const row = this.row(outgoing);
    await this.checkSchema(outgoing);
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

  async cancel(target: CancelTarget): Promise<Cancelled> {
    const { database, known } = this.parts;
    const { statement, what } = boundCancel(target, () => this.currentTenant(), known, database.cancelling);
    return this.inTransaction(
      `the cancelling of '${what}'`,
      () => new NotInTransactionError(what, 'cancel'),
      async (runner, when) => {
        const { rows } = await send(database, runner, statement, when);
        const { cancelled, too_late } = only(rows);
        return { cancelled, tooLate: too_late };
      },
    );
  }

  with(transaction: EntityManager | QueryRunner): EventPublisher {
    const runner = 'startTransaction' in transaction ? transaction : transaction.queryRunner;
    if (!runner?.isTransactionActive) throw new NotInTransactionError('with(…)');
    return new OutboxPublisher(this.parts, runner);
  }

  private one(event: OutgoingEvent): Promise<Published> {
    const row = this.row(event);
    // The schema may take its time; the transaction waits for it, as for the statement, when nobody else does.
    return this.inTransaction(`the publishing of '${row.type}'`, outside(row), async (runner, what) => {
      await this.checkSchema(event);
      return this.insertOne(runner, row, what);
    });
  }

  /** Everything that can be refused without asking anybody is refused here, before any SQL. */
  private row(event: OutgoingEvent): EventRow {
    const { settings, known } = this.parts;
    const row = eventRow(event, event.tenantId ?? this.currentTenant(), settings);
    const strange = known.strangeness(row.type);
    if (strange) throw new InvalidEventError(row.type, 'its type', strange);
    return row;
  }

  /** In a handler that of its event, also for what is published beside the handler's transaction. */
  private currentTenant(): string | null {
    const { follower, settings } = this.parts;
    const handled = follower.current()?.tenantId;
    return handled === undefined ? settings.currentTenant() || null : handled;
  }

  /** Before any SQL, too. A name is checked against the schema that a manifest gave for it. */
  private async checkSchema({ event, payload }: OutgoingEvent): Promise<void> {
    const definition = typeof event === 'string' ? this.parts.known.definition(event) : event;
    if (!definition?.schema) return;
    const checked = await checkPayload(definition, payload);
    if ('problem' in checked) throw new InvalidEventError(typeOf(event), checked.path, checked.problem);
  }

  private async inTransaction<T>(what: string, outside: () => Error, work: Work<T>): Promise<T> {
    const { follower, runners } = this.parts;
    if (this.explicit) {
      const runner = this.explicit;
      if (!runner.isTransactionActive) throw new TransactionFinishedError(what);
      return runners.run(runner, () => work(runner, what));
    }
    const scope = follower.current();
    if (!scope) throw outside();
    return scope.take(what, () => runners.run(scope.runner, () => work(scope.runner, what)));
  }

  /** Nine publishes of ten need no delay and no key: the short statement plans and runs in half the time. */
  private async insertOne(runner: QueryRunner, row: EventRow, what?: string): Promise<Published> {
    if (row.delay !== null || row.runAt !== null || row.uniqueBy !== null)
      return only(await this.insert(runner, [row], what));
    const { database, commits } = this.parts;
    const statement = database.events.publishOne(row.tenant, row.type, row.subject, row.payload, row.headers);
    const since = performance.now();
    const { rows } = await send(database, runner, statement, what);
    commits.note(runner, since);
    return { id: only(rows).id, duplicate: false };
  }

  private async insert(runner: QueryRunner, rows: readonly EventRow[], what?: string): Promise<Published[]> {
    const { database, commits } = this.parts;
    const column = <K extends keyof EventRow>(key: K) => rows.map((row) => row[key]);
    const statement = database.events.publishMany(
      column('tenant'),
      column('type'),
      column('subject'),
      column('payload'),
      column('headers'),
      column('uniqueBy'),
      column('uniqueFor'),
      column('delay'),
      column('runAt'),
    );
    // Before it is sent: it may wait for somebody's unique key, and its rows are due from before that on.
    const since = performance.now();
    const published = await send(database, runner, statement, what);
    // Duplicates put nothing into the queue.
    if (published.rows.some(({ duplicate }) => !duplicate)) commits.note(runner, since);
    return [...published.rows];
  }
}

/** `what` names it when it comes too late. */
type Work<T> = (runner: QueryRunner, what: string) => Promise<T>;

/**
 * With `what` only inside a transaction. Whether that still is can be told at the moment of sending alone: until then a
 * ROLLBACK may stand in front of it, and a released runner's connection may be in somebody else's transaction.
 */
async function send<Row>(
  database: Database,
  runner: QueryRunner,
  bound: Bound<Row>,
  what?: string,
): Promise<BatchResult<Row>> {
  const client = await database.clientOf(runner);
  if (what === undefined) return sendOne(client, bound);
  return sendOne(client, bound, () =>
    runner.isReleased || client.getTransactionStatus() === 'I' ? new TransactionFinishedError(what) : undefined,
  );
}

function outside({ type }: EventRow): () => Error {
  return () => new NotInTransactionError(type);
}

function only<T>(rows: readonly T[]): T {
  const [row] = rows;
  if (row === undefined) throw new Error('the publishing statement returned no row');
  return row;
}
