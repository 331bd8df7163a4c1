import { withDeadline } from '../core/deadline.js';
import { type Duration, durationRemedy, parseDuration } from '../core/duration.js';
import { isUuid } from '../core/uuid.js';
import { EventNotFoundError, type OpenDelivery, WaitStoppedError, WaitTimeoutError } from '../outbox.inspect-errors.js';
import type { Database } from '../tables/database.js';
import type { Explainer, ExplainReason } from './explain.js';
import { WaitLooks, type Watched } from './wait-looks.js';
import type { EndedDelivery } from './wait-outcome.js';

export interface WaitOptions {
  /** A number is milliseconds. Default 30 s, at most 24 days. */
  readonly timeout?: Duration | number;
  /** Ends the wait with the signal's reason. */
  readonly signal?: AbortSignal;
}

export type { EndedDelivery } from './wait-outcome.js';

type Ended = readonly EndedDelivery[];

/** What the words of a wait that is over may take. */
const lastWordsMs = 2_000;
/** Timers hold no more. */
const longestMs = 2 ** 31 - 1;

/** Reasons that nobody waits for. */
const overReasons: ReadonlySet<ExplainReason> = new Set(['handled', 'dead', 'cancelled', 'not-meant', 'no-subscriber']);

/**
 * Waits for the end of events. An id that is not there is waited for while it is younger than a minute, or due later:
 * the transaction that publishes it may not have committed. An older one was never committed, or is forgotten.
 */
export class Waiter {
  private readonly looks: WaitLooks;
  private readonly stops = new Set<() => void>();
  private closed = false;

  constructor(
    database: Pick<Database, 'waits' | 'onPool'>,
    private readonly explainer: Pick<Explainer, 'explain'>,
  ) {
    this.looks = new WaitLooks(database);
  }

  /** See `OutboxInspector.wait`. */
  async wait(given: string, { timeout = '30s', signal }: WaitOptions = {}): Promise<Ended> {
    const timeoutMs = milliseconds(timeout);
    signal?.throwIfAborted();
    if (!isUuid(given)) throw new EventNotFoundError(given, 'it is no id of an event, which is a UUID');
    const id = given.toLowerCase();
    if (this.closed) throw new WaitStoppedError(id);
    const end = new AbortController();
    try {
      return await new Promise<Ended>((resolve, reject) =>
        this.begin({ id, timeoutMs, signal, resolve, reject, end: end.signal }),
      );
    } finally {
      end.abort();
    }
  }

  /** Rejects all waits, and every later one. */
  close(): void {
    this.closed = true;
    for (const stop of this.stops) stop();
  }

  private begin({ id, timeoutMs, signal, resolve, reject, end }: Wait): void {
    const watched: Watched = {
      id,
      seen: (outcome) => {
        if (outcome.kind === 'ended') resolve(outcome.deliveries);
        if (outcome.kind === 'unknown') over(this.notFound(id));
      },
      failed: reject,
    };
    const over = (last: Promise<Ended>): void => {
      this.looks.remove(watched);
      last.then(resolve, reject);
    };
    const timer = setTimeout(() => over(this.lastLook(id, timeoutMs)), timeoutMs);
    const stop = (): void => reject(new WaitStoppedError(id));
    const abort = (): void => reject(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    this.stops.add(stop);
    end.addEventListener('abort', () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      this.stops.delete(stop);
      this.looks.remove(watched);
    });
    this.looks.add(watched);
  }

  /** It may have ended since the last look; otherwise the error says what is open, and why. */
  private async lastLook(id: string, timeoutMs: number): Promise<Ended> {
    try {
      const outcome = await withDeadline('the database', lastWordsMs, this.looks.once(id));
      if (outcome.kind === 'ended') return outcome.deliveries;
      if (outcome.kind !== 'open') return await this.notFound(id);
      throw await this.timeout(id, timeoutMs, outcome.open);
    } catch (error) {
      if (error instanceof WaitTimeoutError || error instanceof EventNotFoundError) throw error;
      throw new WaitTimeoutError(id, timeoutMs, [], { cause: error });
    }
  }

  private async timeout(id: string, timeoutMs: number, open: readonly OpenDelivery[]): Promise<WaitTimeoutError> {
    try {
      const { findings } = await withDeadline('the database', lastWordsMs, this.explainer.explain({ id }));
      const waited = findings.filter(({ reason }) => !overReasons.has(reason));
      return new WaitTimeoutError(
        id,
        timeoutMs,
        waited.map(({ durable, reason, text }) => ({ durable, reason, text })),
      );
    } catch (cause) {
      // A role that may wait need not be one that may read everything.
      return new WaitTimeoutError(id, timeoutMs, open, { cause });
    }
  }

  private async notFound(id: string): Promise<never> {
    const explained = withDeadline('the database', lastWordsMs, this.explainer.explain({ id }));
    const why = await explained.then(
      ({ findings }) => findings[0]?.text,
      () => undefined,
    );
    throw new EventNotFoundError(id, why ?? 'it was never committed, or is forgotten');
  }
}

interface Wait {
  readonly id: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly resolve: (deliveries: Ended) => void;
  readonly reject: (error: unknown) => void;
  /** Aborted when the wait is over, however. */
  readonly end: AbortSignal;
}

function milliseconds(timeout: unknown): number {
  const length = typeof timeout === 'number' ? timeout : parseDuration(timeout);
  if (length === undefined || !(length >= 0 && length <= longestMs))
    throw new TypeError(`wait: '${String(timeout)}' is no timeout of at most 24 days; ${durationRemedy}`);
  return length;
}
