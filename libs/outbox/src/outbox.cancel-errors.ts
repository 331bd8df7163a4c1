import { OutboxError } from './outbox.errors.js';

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
