import { didYouMean } from './core/nearest.js';
import { OutboxError } from './outbox.errors.js';

/** What an operator asked of the inspector makes no sense; nothing was changed. */
export class InvalidQueryError extends OutboxError {
  readonly code = 'OUTBOX_INVALID_QUERY';
}

/** An operator named a durable that the database does not know. */
export class UnknownDurableError extends OutboxError {
  readonly code = 'OUTBOX_UNKNOWN_DURABLE';

  constructor(
    readonly durable: string,
    /** Those there are. */
    readonly known: readonly string[],
  ) {
    super(
      `there is no durable '${durable}'${didYouMean(durable, known)} ${known.length === 0 ? 'No worker has registered any yet.' : `There are: ${known.join(', ')}.`}`,
    );
  }
}

/** What was to be cancelled cannot be found by what was given; refused before any SQL, so the transaction stays usable. */
export class InvalidCancelError extends OutboxError {
  readonly code = 'OUTBOX_INVALID_CANCEL';

  constructor(
    /** Of what was given, such as `id`. */
    readonly path: string,
    problem: string,
  ) {
    super(`nothing can be cancelled: ${path} ${problem}`);
  }
}

/**
 * The reason of `ctx.signal` when somebody cancelled the event with `abort` while it was handled. A handler that then
 * throws, this or anything else, ends its delivery as cancelled; one that returns has done its work.
 */
export class CancelledError extends OutboxError {
  readonly code = 'OUTBOX_CANCELLED';

  constructor(
    readonly durable: string,
    readonly eventId: string,
  ) {
    super(
      `event ${eventId} was cancelled while '${durable}' handled it. Let the error out, and the delivery ends as cancelled: ` +
        'what the handler has written is undone, and it does not run again.',
    );
  }
}

/** A delivery that somebody waited for in vain. */
export interface OpenDelivery {
  /** null: the event itself, which has not reached the deliveries. */
  readonly durable: string | null;
  /** As `OutboxInspector.explain` has it, such as `retrying` or `paused`; `open` when its tables may not be read. */
  readonly reason: string;
  /** Who and when, in words. */
  readonly text: string;
}

/** `OutboxInspector.wait` has waited for as long as it was to, and something has not ended. The event goes its way all the same. */
export class WaitTimeoutError extends OutboxError {
  readonly code = 'OUTBOX_WAIT_TIMEOUT';
  override readonly retryable = true;

  constructor(
    readonly eventId: string,
    readonly timeoutMs: number,
    readonly open: readonly OpenDelivery[],
    options?: ErrorOptions,
  ) {
    super(
      `event ${eventId} has not ended within ${timeoutMs} ms: ${open.map(openText).join('; ') || 'the database did not say what is open'}. ` +
        'Wait longer, or see inspector.explain({ id }).',
      options,
    );
  }
}

/** There is no such event: never committed, or forgotten since. */
export class EventNotFoundError extends OutboxError {
  readonly code = 'OUTBOX_EVENT_NOT_FOUND';

  constructor(
    readonly eventId: string,
    why: string,
  ) {
    super(`there is no event ${eventId} (${why}); wait for it behind the transaction that publishes it, not inside.`);
  }
}

/** The app closes: what was waited for goes its way, and nobody here hears of it. */
export class WaitStoppedError extends OutboxError {
  readonly code = 'OUTBOX_WAIT_STOPPED';
  override readonly retryable = true;

  constructor(readonly eventId: string) {
    super(
      `the app closes, so nobody waits for event ${eventId} any more; the event goes its way. Wait for it in a process that runs.`,
    );
  }
}

function openText({ durable, reason, text }: OpenDelivery): string {
  return `${durable ?? 'the event'} is ${reason.replaceAll('-', ' ')}${text === '' ? '' : ` (${text})`}`;
}
