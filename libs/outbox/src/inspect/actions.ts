import { isStorable } from '../core/storable.js';
import { isUuid } from '../core/uuid.js';
import { InvalidQueryError, UnknownDurableError } from '../outbox.inspect-errors.js';
import type { ActedRow } from '../tables/actions.table.js';
import type { ActionParts, ManyOptions, ManyReport, RowOutcome, SendOptions } from './acting.js';
import { actedOn, discarded, sent } from './action-outcome.js';
import { type ActionOptions, actorOf } from './audit.js';
import { FilteredAction } from './filtered-action.js';
import type { DeliveryFilter } from './listing.js';

export class Actions {
  constructor(private readonly parts: ActionParts) {}

  /** A dead letter runs again from attempt 1; one that waits for its next attempt runs now. */
  async retry(eventId: string, durable: string, options: ActionOptions = {}): Promise<RowOutcome> {
    if (!isUuid(eventId)) return nothing(eventId, durable);
    const { by, reason } = actorOf(options, this.parts.who);
    if (!isStorable(durable))
      return { eventId, durable, outcome: 'not-found', detail: `there is no durable '${durable}'` };
    const { retry, byKeys } = this.parts.database.actions;
    const [, { rows }] = await this.parts.database.onPool(byKeys, retry([eventId], [durable], by, reason, null));
    return this.told(rows[0], actedOn) ?? nothing(eventId, durable);
  }

  /** Default of `filter.state`: discarded. */
  async retryMany(filter: DeliveryFilter, options: ManyOptions = {}): Promise<ManyReport> {
    const states = statesOf(
      filter,
      ['discarded', 'retryable'],
      'retried; what has ended runs once more by send with force (npx nestjs-outbox send <id> --to <durable> --force)',
    );
    const { letters, retryable, retry, preview } = this.parts.database.actions;
    const many = new FilteredAction(this.parts, filter, options);
    const action = { name: 'retry', apply: retry, preview, outcome: actedOn } as const;
    if (states.includes('discarded')) await many.run(letters, '', action);
    if (states.includes('retryable')) await many.run(retryable, '0', action);
    return many.report();
  }

  /** Closes dead letters; they keep their verdict. */
  async discard(filter: DeliveryFilter, options: ManyOptions = {}): Promise<ManyReport> {
    statesOf(filter, ['discarded'], 'discarded; cancel ends what waits');
    const { letters, discard } = this.parts.database.actions;
    const many = new FilteredAction(this.parts, filter, options);
    await many.run(letters, '', { name: 'discard', apply: discard, outcome: discarded });
    return many.report();
  }

  /**
   * Delivers an event to one durable, whether it was meant for it or not, as long as the durable gets events of this
   * type. Throws `UnknownDurableError` when there is no such durable.
   */
  async send(eventId: string, { to, force = false, ...options }: SendOptions): Promise<RowOutcome> {
    const { database, who } = this.parts;
    if (!isUuid(eventId)) return nothing(eventId, to);
    const { by, reason } = actorOf(options, who);
    if (!isStorable(to)) throw new UnknownDurableError(to, []);
    const [{ rows: found }] = await database.onPool(database.pauses.durable(to));
    if (!found[0]?.found)
      throw new UnknownDurableError(
        to,
        found.map(({ name }) => name),
      );
    const [, { rows }] = await database.onPool(
      database.actions.byKeys,
      database.actions.send(eventId, to, by, reason, String(force)),
    );
    return this.told(rows[0], sent) ?? nothing(eventId, to);
  }

  private told(row: ActedRow | undefined, words: (row: ActedRow) => RowOutcome): RowOutcome | undefined {
    if (row?.done) this.parts.takers.nudge();
    return row && words(row);
  }
}

function nothing(eventId: string, durable: string): RowOutcome {
  return { eventId, durable, outcome: 'not-found', detail: `'${eventId}' is no event's id` };
}

/** The states that a filter asks for; all of them by default the first one. */
function statesOf({ state }: DeliveryFilter, allowed: readonly string[], remedy: string): readonly string[] {
  const asked: readonly string[] = state === undefined ? allowed.slice(0, 1) : [state].flat();
  const wrong = asked.filter((each) => !allowed.includes(each));
  if (wrong.length > 0 || asked.length === 0)
    throw new InvalidQueryError(
      `${wrong.join(', ') || 'nothing'}: only what is ${allowed.join(' or ')} can be ${remedy}`,
    );
  return asked;
}
