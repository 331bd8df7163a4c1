import type { Delivery, OutboxEvent } from '../core/envelope.js';
import { errorText } from '../core/error-text.js';
import type { ThrottledLog } from '../core/throttled-log.js';
import type { IncomingMessage } from '../core/transport.js';
import type { Nudge } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import { jsonText, textProblem } from '../events/json-problem.js';
import type { KnownEvents } from '../events/known-events.js';
import { eventNameLength } from '../events/outgoing-event.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { Database } from '../tables/database.js';
import { interval } from '../tables/wire/statement.js';
import type { LateRecorder } from './late-recorder.js';

export interface IntakeParts {
  readonly database: Database;
  readonly settings: Pick<OutboxSettings, 'retentionMs'>;
  readonly recorder: LateRecorder;
  readonly identity: WorkerIdentity;
  readonly known: Pick<KnownEvents, 'accepts'>;
  /** Takers, this process's and others'. */
  readonly takers: Nudge;
  readonly throttled: ThrottledLog;
}

/** A rolling deploy is over by then. */
const deployMs = 10 * 60_000;

/**
 * What becomes of a broker's message before anything runs:
 *
 *   first time ──▶ its lane, as a delivery without a row
 *   again      ──▶ a row of `deliveries` with one interruption, acknowledged: the database counts, not the broker
 *   of another database ──▶ a copy of the event is stored first, committed, so that two durables never wait for each other
 *   of a type that this version does not handle ──▶ another version may: a row where the database says so, acknowledged
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | before a row is written | the message, unanswered | the broker gives it to somebody after its `ack_wait` |
 * | between the row and the acknowledgement | both | the message finds the row, or its mark, and is acknowledged |
 */
export class MessageIntake {
  constructor(private readonly parts: IntakeParts) {}

  /**
   * Resolves to what may start now. `handles`: whether this version of the app does. `answered` is told of the others
   * when they are answered for.
   */
  async take(
    messages: readonly IncomingMessage[],
    handles: (message: IncomingMessage) => boolean,
    answered: (messages: readonly IncomingMessage[]) => void,
  ): Promise<Delivery[]> {
    // To accept a type is each version's own word: what this one does not know of it must not store.
    const unknown = (message: IncomingMessage): boolean =>
      message.foreign && !handles(message) && !this.parts.known.accepts(message.type);
    const others = messages.filter(unknown);
    const ours = messages.filter((message) => !unknown(message));
    const foreign = ours.filter((message) => message.foreign);
    if (others.length > 0) void this.leave(others).finally(() => answered(others));
    if (foreign.length > 0) await this.store(foreign);
    const again = ours.filter(({ redelivered }) => redelivered);
    const fresh = ours.filter(({ redelivered }) => !redelivered);
    const strange = fresh.filter((message) => !handles(message));
    if (again.length > 0) void this.interrupted(again).finally(() => answered(again));
    if (strange.length > 0) void this.record(strange).finally(() => answered(strange));
    return fresh.filter(handles).map((message) => this.delivery(message));
  }

  private delivery({ eventId, durable, message }: IncomingMessage): Delivery {
    return { eventId, durable, message, lease: this.parts.identity.number ?? 0 };
  }

  private async interrupted(messages: readonly IncomingMessage[]): Promise<void> {
    const { database, recorder, takers, throttled } = this.parts;
    const rows = await recorder.untilRecorded(
      `${messages.length} messages that were delivered again`,
      database.deliveries.adoptInterrupted(
        messages.map(({ eventId }) => eventId),
        messages.map(({ durable }) => durable),
      ),
    );
    if (rows === undefined) return;
    for (const { message } of messages) message.ack();
    if (rows === 0) return;
    throttled.warn('redelivered', `${rows} messages that a worker had and did not answer for are tried again`);
    takers.nudge();
  }

  /** As the fan-out would have it: rows for what the database knows the durable to get, and nothing for the rest. */
  private async record(messages: readonly IncomingMessage[]): Promise<void> {
    const { database, recorder, takers } = this.parts;
    const rows = await recorder.untilRecorded(
      `${messages.length} messages of types that this version does not handle`,
      database.deliveries.adopt(
        messages.map(({ eventId }) => eventId),
        messages.map(({ durable }) => durable),
        null,
      ),
    );
    if (rows === undefined) return;
    for (const { message } of messages) message.ack();
    if (rows > 0) takers.nudge();
  }

  /**
   * Of another database, and nothing that this version accepts: a newer one may. While a deploy may be under way they
   * are left to it, if the database has their types; a broker that keeps more than so many would give nothing any more.
   */
  private async leave(messages: readonly IncomingMessage[]): Promise<void> {
    const { database, recorder } = this.parts;
    const meant = new Map<string, number>();
    for (const { durable, type, eventId, message } of messages) {
      const key = `${durable} ${type}`;
      const look = database.durables.meant(durable, type);
      const rows = meant.get(key) ?? (await recorder.untilRecorded(`a message of type ${type}`, look));
      if (rows === undefined) return;
      meant.set(key, rows);
      if (rows > 0 && Date.now() - bornAt(eventId) < deployMs) message.later();
      else message.ack();
    }
  }

  private async store(messages: readonly IncomingMessage[]): Promise<void> {
    const copies = messages.flatMap((message) => this.copyOf(message));
    if (copies.length === 0 || (await this.accepted(copies))) return;
    // One that Postgres refuses, for whatever reason, must not keep the others out.
    for (const copy of copies) if (!(await this.accepted([copy]))) this.unreadable(copy.event, 'it cannot be stored');
  }

  /** False when Postgres refuses them for what they are. */
  private accepted(copies: readonly Copy[]): Promise<boolean> {
    const { database, settings, recorder } = this.parts;
    return recorder.unlessRefused(
      `${copies.length} events of another database`,
      database.events.accept(
        copies.map(({ event }) => event.id),
        copies.map(({ event }) => event.tenantId),
        copies.map(({ event }) => event.type),
        copies.map(({ event }) => event.subject),
        copies.map(({ payload }) => payload),
        copies.map(({ headers }) => headers),
        copies.map(({ event }) => event.occurredAt.toISOString()),
        interval(settings.retentionMs),
      ),
    );
  }

  /** Without its copy the message finds no row, and nothing runs. */
  private copyOf(message: IncomingMessage): Copy[] {
    if (!this.parts.known.accepts(message.type)) return [];
    try {
      return [copyOf(message.copy())];
    } catch (error) {
      this.unreadable({ type: message.type, id: message.eventId }, errorText(error));
      return [];
    }
  }

  private unreadable({ type, id }: Pick<OutboxEvent, 'type' | 'id'>, why: string): void {
    this.parts.throttled.warn(
      'copy',
      `a message of another database (${type} ${id}) cannot be read, and does not run: ${why}`,
    );
  }
}

/** An event of another database, as its columns. */
interface Copy {
  readonly event: OutboxEvent;
  readonly payload: string;
  readonly headers: string;
}

/** Nobody has checked these: what Postgres would refuse is found before it is asked. */
function copyOf(event: OutboxEvent): Copy {
  for (const [what, text] of [
    ['the tenant', event.tenantId],
    ['the subject', event.subject],
  ] as const) {
    const problem = text === null ? undefined : textProblem(text, what);
    if (problem) throw new Error(`${problem.path} ${problem.problem}`);
    if ((text?.length ?? 0) > eventNameLength) throw new Error(`${what} has more than ${eventNameLength} characters`);
  }
  const [payload, headers] = [jsonText(event.payload, 'payload'), jsonText(event.headers, 'headers')];
  if (typeof payload !== 'string') throw new Error(`${payload.path} ${payload.problem}`);
  if (typeof headers !== 'string') throw new Error(`${headers.path} ${headers.problem}`);
  return { event, payload, headers };
}

/** The time in an event's id. */
function bornAt(id: string): number {
  return Number.parseInt(id.replace('-', '').slice(0, 12), 16);
}
