import { type Duration, durationRemedy, parseDuration } from './core/duration.js';

/**
 * Every error of the library: a stable `code`, whether the same call may succeed later (`retryable`), the ids it is
 * about, and the remedy in its message. Recognise them by `code`, not by `instanceof`: a tree of `node_modules` may
 * hold two copies of this package.
 */
export abstract class OutboxError extends Error {
  abstract readonly code: string;
  readonly retryable: boolean = false;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** `publish` or `cancel` was called where no followed transaction is open. */
export class NotInTransactionError extends OutboxError {
  readonly code = 'OUTBOX_NOT_IN_TRANSACTION';

  constructor(
    /** Of what was cancelled, its id or its type. */
    readonly eventType: string,
    does: 'publish' | 'cancel' = 'publish',
  ) {
    super(
      `'${eventType}' was ${does === 'publish' ? 'published' : 'cancelled'} outside a transaction, so it could neither commit nor roll back with anything. Either ` +
        `(1) ${does} inside the callback of dataSource.transaction(…), or (2) hand over your own transaction with ` +
        'publisher.with(queryRunner) or publisher.with(manager), or (3) call ' +
        `${does === 'publish' ? 'publishNow(…)' : 'cancel(…) of OutboxInspector'} when nothing else has to commit with the event.`,
    );
  }
}

/** `publish` was called after its transaction had ended, usually because a promise was not awaited. */
export class TransactionFinishedError extends OutboxError {
  readonly code = 'OUTBOX_TRANSACTION_FINISHED';

  constructor(readonly what: string) {
    super(
      `${what} came after its transaction had ended. Await it (and everything that leads to it) inside the transaction's ` +
        'callback or the handler; work that is meant to go on afterwards takes a transaction of its own.',
    );
  }
}

/** What a stray is, and where. */
export interface Stray {
  /** What was called, such as `Repository.save`. */
  readonly called: string;
  readonly kind: 'write' | 'read';
  /** Whose handler it was in. */
  readonly durable: string | undefined;
  readonly file: string | undefined;
  readonly line: number | undefined;
}

/**
 * A repository (or anything else of the DataSource) was used beside the transaction that is open around the call: on
 * another connection, where what it writes neither commits nor rolls back with the rest.
 */
export class StrayWriteError extends OutboxError {
  readonly code = 'OUTBOX_STRAY_WRITE';
  readonly durable: string | undefined;
  /** Of the call, in the application's code; `undefined` when no frame of it was left. */
  readonly file: string | undefined;
  readonly line: number | undefined;

  constructor(stray: Stray) {
    const { called, kind, durable, file, line } = stray;
    const manager = durable === undefined ? "the callback's manager" : 'ctx.manager';
    super(
      `${durable === undefined ? '' : 'refused before any SQL: '}${called} at ${file === undefined ? 'an unknown place' : `${file}:${line}`} ${strayed(kind, durable)} Either (1) use ` +
        `${manager}, or manager.withRepository(repository) of it, or (2) let repositories take part by themselves: ` +
        "OutboxModule.forRoot({ transactions: { repositories: 'join' } }), or (3) when it is meant to be apart, call it " +
        'inside outbox.outside(() => …) of the injected Outbox.',
    );
    this.durable = durable;
    this.file = file;
    this.line = line;
  }
}

function strayed(kind: Stray['kind'], durable: string | undefined): string {
  if (kind === 'read')
    return (
      `reads beside the transaction of the handler of '${durable}', on a connection for which no tenant is set: with ` +
      'row-level security it finds nothing.'
    );
  return durable === undefined
    ? 'does not use the transaction in whose callback it is called, but another connection: what it writes stays when the transaction rolls back.'
    : `does not use the transaction of the handler of '${durable}', but another connection: what it writes would stay when the handler fails, and be written again by its next attempt.`;
}

/** Something about an event cannot be stored or sent; found before any SQL, so the transaction stays usable. */
export class InvalidEventError extends OutboxError {
  readonly code = 'OUTBOX_INVALID_EVENT';

  constructor(
    readonly eventType: string,
    /** Where in the event, such as `payload.lines[2].amount`. */
    readonly path: string,
    problem: string,
  ) {
    super(`'${eventType}' cannot be published: ${path} ${problem}`);
  }
}

/** A stored payload does not fit the handler's schema. Climbs the ladder like any failure: a newer version may understand it. */
export class PayloadMismatchError extends OutboxError {
  readonly code = 'OUTBOX_PAYLOAD_MISMATCH';
  override readonly retryable = true;

  constructor(
    readonly durable: string,
    readonly eventType: string,
    readonly eventId: string,
    /** Where in the event, such as `payload.lines[2].amount`. */
    readonly path: string,
    problem: string,
  ) {
    super(
      `'${durable}' cannot take '${eventType}' ${eventId}: ${path} ${problem}. It was published by another version of the ` +
        'app or past the schema; make the schema accept it, or resolve its dead letter.',
    );
  }
}

/** Thrown by a handler: no further attempt can help; the delivery becomes a dead letter now. */
export class UnrecoverableError extends OutboxError {
  readonly code = 'OUTBOX_UNRECOVERABLE';
}

/** Thrown by a handler: not now. The delivery comes back after `delay` and no attempt is used up. */
export class SnoozeError extends OutboxError {
  readonly code = 'OUTBOX_SNOOZE';
  override readonly retryable = true;
  readonly delayMs: number;

  constructor(delay: Duration, reason = 'snoozed', options?: ErrorOptions) {
    super(reason, options);
    const delayMs = parseDuration(delay);
    if (delayMs === undefined) throw new TypeError(`SnoozeError: '${delay}' is not a duration; ${durationRemedy}`);
    this.delayMs = delayMs;
  }
}

/** A handler ran longer than its `timeout`; its connection was ended, so nothing it still does can commit. */
export class HandlerTimeoutError extends OutboxError {
  readonly code = 'OUTBOX_HANDLER_TIMEOUT';
  override readonly retryable = true;

  constructor(
    readonly durable: string,
    readonly eventId: string,
    timeoutMs: number,
  ) {
    super(
      `handler of '${durable}' did not finish event ${eventId} within ${timeoutMs} ms: its signal was aborted and its ` +
        `database connection ended. Pass ctx.signal to what it waits for, or raise the subscription's timeout.`,
    );
  }
}

/** The handler caught an SQL error and returned: Postgres had already undone everything, so there was nothing to commit. */
export class SwallowedSqlError extends OutboxError {
  readonly code = 'OUTBOX_SWALLOWED_SQL_ERROR';
  override readonly retryable = true;

  constructor(readonly durable: string) {
    super(
      `handler of '${durable}' returned normally after an SQL statement of its transaction had failed; Postgres had ` +
        'aborted the transaction, so nothing was committed. Let the error out, or run the statement that may fail in ' +
        'ctx.manager.transaction(…), which is a savepoint.',
    );
  }
}

/** The handler ended the transaction that the library had opened for it (a raw COMMIT or ROLLBACK). */
export class TransactionEndedByHandlerError extends OutboxError {
  readonly code = 'OUTBOX_TRANSACTION_ENDED_BY_HANDLER';
  override readonly retryable = true;

  constructor(readonly durable: string) {
    super(
      `handler of '${durable}' ended its own transaction (a raw COMMIT or ROLLBACK, a stray commitTransaction(), or release() of its query runner). ` +
        'The library commits for the handler; for an independent transaction use dataSource.transaction(…).',
    );
  }
}

/** The handler returned while a nested transaction of its manager was still open, usually because it was not awaited. */
export class NestedTransactionLeftOpenError extends OutboxError {
  readonly code = 'OUTBOX_NESTED_TRANSACTION_LEFT_OPEN';
  override readonly retryable = true;

  constructor(readonly durable: string) {
    super(
      `handler of '${durable}' returned while a nested transaction was open or had been ended twice. Await every ` +
        'ctx.manager.transaction(…), one after the other: TypeORM gives parallel ones the same savepoint names.',
    );
  }
}

/** The attempts a delivery had were all cut off by something that ended the process or its connection. */
export class InterruptedError extends OutboxError {
  readonly code = 'OUTBOX_INTERRUPTED';

  constructor(
    readonly durable: string,
    interruptions: number,
  ) {
    super(
      `handling by '${durable}' was interrupted ${interruptions} times: each time the process or its database connection ` +
        'ended before the handler did. Look for out-of-memory kills, process.exit, endless loops, or SQL that ends its session.',
    );
  }
}

/** One thing that keeps the module from starting. */
export interface BootProblem {
  readonly check: string;
  readonly message: string;
}

/** A wrong set-up does not boot: every problem found, each with its remedy, in one report. */
export class OutboxBootError extends OutboxError {
  readonly code = 'OUTBOX_BOOT';

  /** Not enumerable: consoles that print an error's own fields would say everything twice. */
  declare readonly problems: readonly BootProblem[];

  constructor(problems: readonly BootProblem[]) {
    const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`;
    super(
      `nestjs-outbox does not start: ${count}.\n${problems.map((p) => `  - ${p.message} [${p.check}]`).join('\n')}`,
    );
    Object.defineProperty(this, 'problems', { value: problems });
  }
}

/** The schema could not be changed now because other work held a lock on it; nothing was changed. */
export class SchemaLockedError extends OutboxError {
  readonly code = 'OUTBOX_SCHEMA_LOCKED';
  override readonly retryable = true;

  constructor(version: number, tries: number, options: ErrorOptions) {
    super(
      `the outbox schema could not be moved to version ${version}: its tables stayed locked through ${tries} tries. ` +
        'Nothing was changed; run the migration again when long transactions have ended.',
      options,
    );
  }
}

/** A durable that a worker still handles cannot be retired: it would go on, and its deliveries come back. */
export class DurableServedError extends OutboxError {
  readonly code = 'OUTBOX_DURABLE_SERVED';
  override readonly retryable = true;

  constructor(readonly durable: string) {
    super(
      `durable '${durable}' was handled by a worker within the last two minutes; stop the workers that have it, or deploy ` +
        'them without it, and retire it two minutes later.',
    );
  }
}

/** A request about the schema that cannot be carried out as asked. */
export class SchemaError extends OutboxError {
  readonly code = 'OUTBOX_SCHEMA';
}

/** The connection, pool or driver that was given cannot be used as it is. */
export class UnsupportedDriverError extends OutboxError {
  readonly code = 'OUTBOX_UNSUPPORTED_DRIVER';
}
