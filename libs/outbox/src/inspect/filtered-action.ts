import { databaseTrouble, errorCode } from '../core/database-errors.js';
import { InvalidQueryError } from '../outbox.inspect-errors.js';
import type { ActedRow, FoundRow } from '../tables/actions.table.js';
import type { Bound, Statement, Value } from '../tables/wire/statement.js';
import type { ActionParts, ManyOptions, ManyReport, RowOutcome } from './acting.js';
import { type Actor, actorOf } from './audit.js';
import { searched, vain, wantedOf } from './filter.js';
import type { DeliveryFilter } from './listing.js';

/** What is done to the rows that are found. */
export interface RowAction {
  readonly name: 'retry' | 'discard';
  readonly apply: Statement<ActedRow>;
  /** What it would come to; without one it is done to whatever is found. */
  readonly preview?: Statement<ActedRow>;
  readonly outcome: (row: ActedRow) => RowOutcome;
}

const firstId = '00000000-0000-0000-0000-000000000000';
/** So many outcomes are kept for the report. */
const rowsKept = 10_000;

/**
 * One action by filter: a look at the next few hundred rows in the order of their keys, then the action on those that
 * match, committed, until there are no more. What begins after it is not its, or it would follow a storm for ever.
 */
export class FilteredAction {
  private readonly rows: RowOutcome[] = [];
  private readonly counts = { matched: 0, done: 0, unchanged: 0, failed: 0 };
  private readonly search: readonly Value[];
  private readonly actor: Actor;
  private begun: string | undefined;

  constructor(
    private readonly parts: ActionParts,
    private readonly filter: DeliveryFilter,
    private readonly options: ManyOptions,
  ) {
    const wanted = wantedOf(filter);
    const problem = vain(wanted);
    if (problem) throw new InvalidQueryError(problem);
    this.search = searched(wanted);
    const { limit = 0 } = options;
    if (!(limit >= 0 && (Number.isInteger(limit) || limit === Number.POSITIVE_INFINITY)))
      throw new InvalidQueryError(`'limit' is ${limit}: it must be a whole number from 0 on`);
    this.actor = actorOf(options, parts.who);
  }

  report(): ManyReport {
    return { ...this.counts, dryRun: this.options.dryRun === true, rows: this.rows };
  }

  /** `first` comes before every key of `find`. */
  async run(find: Statement<FoundRow>, first: string, action: RowAction): Promise<void> {
    this.begun ??= await this.now();
    for (let from: readonly [string, string] | undefined = [firstId, first]; from && !this.over(); ) {
      const rows: readonly FoundRow[] = await this.one(find(...from, ...this.search, this.begun));
      const last = rows.at(-1);
      await this.act(rows.filter(({ hit }) => hit).slice(0, this.left()), action);
      from = last && !last.end ? [last.event_id, last.key] : undefined;
    }
  }

  private over(): boolean {
    return this.left() <= 0 || this.options.signal?.aborted === true;
  }

  private left(): number {
    return (this.options.limit ?? Number.POSITIVE_INFINITY) - this.counts.matched;
  }

  private async act(found: readonly FoundRow[], action: RowAction): Promise<void> {
    if (found.length === 0) return;
    const outcomes = this.options.dryRun
      ? await this.foreseen(found, action)
      : ((await this.together(found, action)) ?? (await this.oneByOne(found, action)));
    if (outcomes.some(({ outcome }) => outcome === 'done') && !this.options.dryRun) this.parts.takers.nudge();
    for (const row of outcomes) this.tell(row);
  }

  private async foreseen(found: readonly FoundRow[], { preview, outcome }: RowAction): Promise<RowOutcome[]> {
    if (preview) return (await this.one(preview(...keys(found)))).map(outcome);
    return found.map(({ event_id, durable }) => ({ eventId: event_id, durable, outcome: 'done', detail: null }));
  }

  /** Nothing when Postgres refused them: then one of them is the reason. */
  private async together(found: readonly FoundRow[], action: RowAction): Promise<RowOutcome[] | undefined> {
    try {
      return await this.apply(found, action);
    } catch (error) {
      if (everyones(error)) throw error;
      return undefined;
    }
  }

  private async oneByOne(found: readonly FoundRow[], action: RowAction): Promise<RowOutcome[]> {
    const outcomes: RowOutcome[] = [];
    for (const row of found) {
      try {
        outcomes.push(...(await this.apply([row], action)));
      } catch (error) {
        if (everyones(error)) throw error;
        const detail = error instanceof Error ? error.message : String(error);
        outcomes.push({ eventId: row.event_id, durable: row.durable, outcome: 'failed', detail });
      }
    }
    return outcomes;
  }

  private async apply(found: readonly FoundRow[], { apply, outcome }: RowAction): Promise<RowOutcome[]> {
    const { by, reason } = this.actor;
    const filter = JSON.stringify(this.filter);
    const rows = await this.one(apply(...keys(found), by, reason, filter));
    return rows.map(outcome);
  }

  private async one<Row>(bound: Bound<Row>): Promise<readonly Row[]> {
    const { database } = this.parts;
    const [, { rows }] = await database.onPool(database.actions.byKeys, bound);
    return rows;
  }

  private async now(): Promise<string> {
    const [row] = await this.one(this.parts.database.actions.now());
    if (!row) throw new Error('the clock returned no row');
    return row.now;
  }

  private tell(row: RowOutcome): void {
    this.counts.matched++;
    // What vanished between the look and the action is nobody's any more.
    this.counts[row.outcome === 'not-found' ? 'unchanged' : row.outcome]++;
    if (this.rows.length < rowsKept) this.rows.push(row);
    this.options.onRow?.(row, { ...this.counts });
  }
}

/** No single row is to blame. */
function everyones(error: unknown): boolean {
  return databaseTrouble(error) === 'outage' || errorCode(error) === '42501';
}

function keys(found: readonly FoundRow[]): [string[], string[]] {
  return [found.map(({ event_id }) => event_id), found.map(({ durable }) => durable)];
}
