import type { EntityManager, QueryRunner } from 'typeorm';
import type { Cancelled } from '../core/cancelled.js';
import type { Duration } from '../core/duration.js';
import type { EventRef, PayloadOf } from './event-ref.js';

export interface PublishOptions {
  /** What the event is about, such as an entity's id; at most 255 characters. */
  readonly subject?: string;
  /** Not before this long from now, by the database's clock; at most 10 years. Excludes `runAt`. */
  readonly delay?: Duration;
  /** Not before this instant; a past one means now. Excludes `delay`. */
  readonly runAt?: Date;
  /** Strings for strings, at most 16 KiB as JSON. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Publish this only if the same has not been published before; see `Unique`. */
  readonly unique?: Unique;
}

/**
 * What makes an event the same as an earlier one of its tenant and type: its payload (`true`; the order of names in it
 * does not matter), or a key of at most 1,000 characters. The earlier one stands for as long as events are kept (option
 * `retention.after`, 7 days unless set), or for as long as `for` says (at most 10 years), counted from the time at which
 * it is due; after that the next one takes its place.
 *
 * A duplicate is no error: nothing is stored, and `publish` answers with the id of the event that stands and
 * `duplicate: true`. An equal event that another transaction has published and not committed is waited for; when that
 * one rolls back, ours is published. From its publish to its commit a transaction keeps others that publish the same
 * waiting, duplicate or not: publish late, commit soon.
 *
 * Two transactions that publish the same two keys one after the other, in opposite order, wait for each other: Postgres
 * ends one of them with error 40P01 (deadlock detected), as it does for rows that are updated in opposite order. That
 * transaction has to be repeated as a whole. (`publishNow` with what the transaction around it has published waits for
 * that transaction, and nobody can see that it waits for itself.) One `publishMany` takes its keys in one order and cannot deadlock with
 * another: publish several unique events with it. Under REPEATABLE READ and SERIALIZABLE a key that somebody else
 * has published since the transaction began is error 40001, which such transactions have to repeat anyway.
 */
export type Unique = true | string | { readonly key: string; readonly for?: Duration };

/** One event of `publishMany`. */
export interface OutgoingEvent<R = EventRef> extends PublishOptions {
  readonly event: R;
  readonly payload: PayloadOf<R>;
  /** Default: the current tenant. */
  readonly tenantId?: string;
}

export interface Published {
  /** The event's id: a UUID v7, minted by the database from the time at which the event is due. */
  readonly id: string;
  /** Whether an earlier event stands for this one (only with a unique key). */
  readonly duplicate: boolean;
}

/** What is to be cancelled: one event by its id or its unique key, or all of a type about a subject. */
export type CancelTarget<R = EventRef> =
  | { readonly id: string }
  | {
      readonly event: R;
      /** The key that it was published with. */
      readonly unique: string;
      /** Default: the current tenant. */
      readonly tenantId?: string;
    }
  | {
      readonly event: R;
      readonly subject: string;
      /** Default: the current tenant. */
      readonly tenantId?: string;
    };

/**
 * Publishes events in the current transaction: inside the callback of `dataSource.transaction(…)`, and inside a handler.
 * What cannot be stored is refused with `InvalidEventError` before any SQL. An abstract class, so that it is both the
 * injection token and a type that tests can implement.
 *
 * Throws `NotInTransactionError` outside a transaction, `TransactionFinishedError` after its end.
 */
export abstract class EventPublisher {
  /**
   * One event, for the current tenant. A handler gets `JSON.parse(JSON.stringify(payload))`, deeply equal, numbers to the
   * last bit and texts to the last byte. So a Date arrives as its text, a class instance as what its `toJSON` says or as
   * its own properties, a property that is `undefined` not at all, and -0 as 0; names may come in another order, because
   * the database keeps `jsonb`. What JSON would lose without a word is refused, and so is deeper nesting than 512.
   */
  abstract publish<const R extends EventRef>(
    event: R,
    payload: PayloadOf<R>,
    options?: PublishOptions,
  ): Promise<Published>;
  /** One event, for `tenantId`. */
  abstract publishFor<const R extends EventRef>(
    tenantId: string,
    event: R,
    payload: PayloadOf<R>,
    options?: PublishOptions,
  ): Promise<Published>;
  /** Any number of events in one statement; the answers come in the same order. */
  abstract publishMany<const R extends readonly EventRef[]>(
    events: readonly [...{ [K in keyof R]: OutgoingEvent<R[K]> }],
  ): Promise<Published[]>;
  /** One event in a transaction of its own, when nothing else has to commit with it. */
  abstract publishNow<const R extends EventRef>(
    event: R,
    payload: PayloadOf<R>,
    options?: PublishOptions & { tenantId?: string },
  ): Promise<Published>;
  /**
   * Cancels what has not been handled yet, with the current transaction: when that rolls back, nothing was cancelled. It
   * wins until a handler has claimed the event, and is too late from then on (a claim that is under way is waited for 50 ms
   * at most; one that fails and waits for its next attempt can be cancelled again). Each durable has its own answer. The
   * transaction stays usable, whatever the answer, which is no error.
   *
   * An event of which every delivery is cancelled gives its unique key back: the same may be published again, in the same
   * transaction, too. It is too late as well while another open transaction has published the same key and was told that
   * this event stands for it (after half a second). Under REPEATABLE READ and SERIALIZABLE only events that the
   * transaction can see are cancelled.
   *
   * Throws `InvalidCancelError` before any SQL.
   */
  abstract cancel(target: CancelTarget): Promise<Cancelled>;
  /** The same publisher, writing in a transaction that you opened yourself. */
  abstract with(transaction: EntityManager | QueryRunner): EventPublisher;
}
