import type { Database } from '../tables/database.js';
import { countedTo } from '../tables/health.table.js';
import type { MarksRow, OverviewDurableRow, StateCountRow, WaitingPlaceRow } from '../tables/inspect-overview.table.js';
import { relayName } from '../tables/queue.table.js';
import { type DeliveryState, dateOf } from './delivery-info.js';
import { matcherOfType } from './filter.js';
import { type Pause, pauseOf } from './pauses.js';

export interface OverviewQuery {
  /** Only events of this type or pattern. */
  readonly type?: string;
}

/** What waits at most is counted up to 10,001: beyond that nobody asks how much. */
export interface DurableOverview {
  /** `#relay`, of which there are only discarded ones: they could not be forwarded. */
  readonly durable: string;
  readonly retired: boolean;
  readonly paused: Pause | null;
  /**
   * Each up to 10,001. Completed and cancelled ones are those of the last minute, out of the newest 10,000; discarded ones
   * are the open dead letters. What a worker has taken and not begun is in none; of what waits, the 10,001 that are due
   * first are looked at; with a broker, what waits there is counted up to 2,001; of a type, the first 2,001 are looked at.
   */
  readonly counts: Readonly<Record<DeliveryState, number>>;
  /** Completed a second, over the last minute. */
  readonly perSecond: number;
  /** When the oldest of each kind became due, or dead; null when none is. */
  readonly oldest: { readonly pending: Date | null; readonly retryable: Date | null; readonly discarded: Date | null };
  /** When a worker that handles it was last seen, to about a minute. */
  readonly seenAt: Date | null;
}

export interface Overview {
  readonly at: Date;
  /** Up to 10,001 each. */
  readonly queue: { readonly waiting: number; readonly oldest: Date | null };
  readonly scheduled: { readonly waiting: number; readonly next: Date | null };
  readonly durables: readonly DurableOverview[];
  readonly workers: readonly {
    readonly number: number;
    readonly app: string;
    readonly running: number;
    readonly seenAt: Date;
  }[];
  readonly pauses: readonly Pause[];
}

type Counts = Readonly<Record<DeliveryState, number>>;

/** Asks all of it at once, of one moment. */
export class OverviewReader {
  constructor(private readonly database: Database) {}

  async look(query: OverviewQuery = {}): Promise<Overview> {
    const matcher = matcherOfType(query.type);
    const { inspectOverview: ask } = this.database;
    const [at, durables, places, marks, workers, paused, ...counts] = await this.database.snapshot(
      ask.at(),
      ask.durables(),
      ask.places(matcher),
      ask.marks(matcher),
      ask.workers(),
      this.database.pauses.list(),
      ...ask.counts.map((count) => count(matcher)),
    );
    const pauses = paused.rows.map(pauseOf);
    const states = counts.flatMap(({ rows }) => rows);
    const of = (row: OverviewDurableRow): DurableOverview =>
      durableOf(
        row,
        states,
        marks.rows.find(({ dn }) => dn === row.id),
        pauses,
      );
    const relay = states.some(({ dn }) => dn === relayRow.id) ? [of(relayRow)] : [];
    return {
      at: new Date(at.rows[0]?.at_ms ?? 0),
      ...placesOf(places.rows),
      durables: [...durables.rows.map(of), ...relay],
      workers: workers.rows.map(({ number, app, running, seen_ms }) => ({
        number,
        app,
        running,
        seenAt: new Date(seen_ms),
      })),
      pauses,
    };
  }
}

/** What could not be forwarded, for whichever durable; told when there is any. */
const relayRow: OverviewDurableRow = { id: -1, durable: relayName, retired: false, seen_ms: null };

function placesOf(rows: readonly WaitingPlaceRow[]): Pick<Overview, 'queue' | 'scheduled'> {
  const of = (place: WaitingPlaceRow['place']) => rows.find((row) => row.place === place);
  const [queue, scheduled] = [of('queue'), of('scheduled')];
  return {
    queue: { waiting: queue?.waiting ?? 0, oldest: dateOf(queue?.first_ms ?? null) },
    scheduled: { waiting: scheduled?.waiting ?? 0, next: dateOf(scheduled?.first_ms ?? null) },
  };
}

function durableOf(
  row: OverviewDurableRow,
  states: readonly StateCountRow[],
  marks: MarksRow | undefined,
  pauses: readonly Pause[],
): DurableOverview {
  const own = states.filter(({ dn }) => dn === row.id);
  const completed = marks?.completed ?? 0;
  return {
    durable: row.durable,
    retired: row.retired,
    paused: pauses.find(({ kind, name }) => kind === 'durable' && name === row.durable) ?? null,
    counts: countsOf(own, completed, marks?.cancelled ?? 0),
    perSecond: marks ? (completed * 1_000) / marks.over_ms : 0,
    oldest: {
      pending: oldestOf(own, 'pending'),
      retryable: oldestOf(own, 'retryable'),
      discarded: oldestOf(own, 'discarded'),
    },
    seenAt: dateOf(row.seen_ms),
  };
}

function countsOf(rows: readonly StateCountRow[], completed: number, cancelled: number): Counts {
  const sum = (state: DeliveryState): number =>
    Math.min(
      countedTo,
      rows.reduce((all, row) => all + (row.state === state ? row.n : 0), 0),
    );
  return {
    pending: sum('pending'),
    running: sum('running'),
    retryable: sum('retryable'),
    completed,
    discarded: sum('discarded'),
    cancelled,
  };
}

function oldestOf(rows: readonly StateCountRow[], state: DeliveryState): Date | null {
  const moments = rows.flatMap((row) => (row.state === state && row.oldest_ms !== null ? [row.oldest_ms] : []));
  return moments.length === 0 ? null : new Date(Math.min(...moments));
}
