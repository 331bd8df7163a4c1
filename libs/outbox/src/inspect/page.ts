import type { Database } from '../tables/database.js';
import type { ListedRow, ListSource, LookedRow } from '../tables/inspect-list.table.js';
import type { DeliveryState } from './delivery-info.js';
import { boundOf, leastOf, parameters, type Wanted } from './filter.js';
import { above, type Place, topDurable } from './place.js';

const placeOfRow = ({ event_id, dn }: ListedRow): Place => ({ eventId: event_id, durable: dn });

/** Newest first, each delivery once. */
export function inOrder(rows: readonly ListedRow[]): ListedRow[] {
  const once = new Map(rows.map((row) => [`${row.event_id}/${row.dn}`, row]));
  return [...once.values()].sort((a, b) => (above(placeOfRow(a), placeOfRow(b)) ? -1 : 1));
}

const statesOf: Readonly<Record<ListSource, readonly DeliveryState[]>> = {
  scheduled: ['pending'],
  queue: ['pending'],
  messages: ['pending'],
  rows: ['pending', 'retryable'],
  runningMessages: ['running'],
  runningRows: ['running'],
  completed: ['completed'],
  ended: ['discarded', 'cancelled'],
  letters: ['discarded'],
};
const sources = Object.keys(statesOf) as readonly ListSource[];

/** A page that finds little goes on for so long, each time among four times as many rows. */
const patienceMs = 3_000;
const mostLooked = 20_000;
/** Events of one subject that are looked at together. */
const eventsAtOnce = 200;

interface Step {
  readonly rows: readonly ListedRow[];
  /** Everything above was looked at; undefined: everything there is. */
  readonly down: Place | undefined;
}

/** One page out of several sources, each of which has its own order by index. */
export class PageReader {
  constructor(
    private readonly database: Database,
    private readonly wanted: Wanted,
    private readonly limit: number,
  ) {}

  async read(from: Place): Promise<{ readonly rows: readonly ListedRow[]; readonly next: Place | null }> {
    const end = performance.now() + patienceMs;
    const found: ListedRow[] = [];
    let place: Place | undefined = from;
    for (let look = Math.max(200, 2 * this.limit); place; look = Math.min(4 * look, mostLooked)) {
      const { rows, down }: Step = await this.step(place, look);
      found.push(...rows);
      if (found.length > this.limit || (found.length === this.limit && down)) {
        const page = found.slice(0, this.limit);
        return { rows: page, next: placeOfRow(page.at(-1) as ListedRow) };
      }
      place = down;
      if (performance.now() > end) break;
    }
    return { rows: found, next: place ?? null };
  }

  private step(place: Place, look: number): Promise<Step> {
    const { eventId, subject } = this.wanted;
    if (eventId !== null) return this.among(place, [eventId.toLowerCase()], undefined);
    return subject === null ? this.below(place, look) : this.ofSubject(place, subject);
  }

  private async below(place: Place, look: number): Promise<Step> {
    const { below } = this.database.inspectList;
    // One more than the page: so a full page knows whether there is another.
    const limit = this.limit + 1;
    const asked = this.asked();
    const answers = await this.database.snapshot(
      ...asked.map(([source, states]) =>
        below[source](...parameters(place, leastOf(this.wanted), limit, look, this.wanted, states)),
      ),
    );
    const ends = answers.map(({ rows: [row] }) => endOf(row, limit, look));
    const down = ends.reduce((a, b) => (a && (!b || above(a, b)) ? a : b), undefined);
    const rows = inOrder(answers.flatMap(({ rows: [row] }) => row?.found ?? []));
    return { rows: down ? rows.filter((row) => !above(down, placeOfRow(row))) : rows, down };
  }

  private async ofSubject(place: Place, subject: string): Promise<Step> {
    const [{ rows }] = await this.database.snapshot(
      this.database.inspectList.bySubject(subject, place.eventId, leastOf(this.wanted), eventsAtOnce),
    );
    const last = rows.length < eventsAtOnce ? undefined : rows.at(-1);
    return this.among(
      place,
      rows.map(({ id }) => id),
      last && { eventId: last.id, durable: -topDurable },
    );
  }

  private async among(place: Place, ids: readonly string[], down: Place | undefined): Promise<Step> {
    if (ids.length === 0) return { rows: [], down };
    const { of } = this.database.inspectList;
    const answers = await this.database.snapshot(
      ...this.asked().map(([source, states]) =>
        of[source](...boundOf(place, leastOf(this.wanted), { ...this.wanted, states }, ids)),
      ),
    );
    return { rows: inOrder(answers.flatMap(({ rows: [row] }) => row?.found ?? [])), down };
  }

  private asked(): readonly (readonly [ListSource, readonly DeliveryState[]])[] {
    return sources
      .map((source) => [source, statesOf[source].filter((state) => this.wanted.states.includes(state))] as const)
      .filter(([, states]) => states.length > 0);
  }
}

/** How far down a source has told everything. */
function endOf(row: LookedRow | undefined, limit: number, look: number): Place | undefined {
  const last = row?.found.at(-1);
  if (row && last && row.found.length >= limit) return placeOfRow(last);
  if (!row?.last || row.looked < look) return undefined;
  const [eventId, durable] = row.last;
  return { eventId, durable };
}
