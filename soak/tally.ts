import { failing, subscriptions } from './events.js';
import type { Absence } from './fleet.js';
import type { PatientPool } from './patient-pool.js';
import { countsSql, missingSql, ticksSql, wrongSql } from './tables.js';

export interface Counts {
  readonly events: number;
  readonly deliveries: number;
  /** Deliveries without an effect or a dead letter. */
  readonly lost: number;
  /** Effects and dead letters beyond the one that each delivery may have. */
  readonly twice: number;
  readonly dead: number;
  /** Dead letters of deliveries that did not ask for it. */
  readonly deadByMistake: number;
  /** Events that a publisher was told are committed, and are not. */
  readonly unkept: number;
  /** Events without a note, and notes without an event: half a transaction. */
  readonly torn: number;
  /** Effects of events that nobody published. */
  readonly unasked: number;
  /** Attempts that were charged. */
  readonly failed: number;
}

export interface Tick {
  readonly slot: Date;
  readonly attempt: number;
  readonly pid: number;
  readonly started: number;
  readonly ended: number | null;
}

const asked = [subscriptions.map(({ type }) => type), subscriptions.map(({ durable }) => durable)];
const pairs = [...asked, failing];

export async function count(database: PatientPool, committed: readonly string[]): Promise<Counts> {
  const [counts] = await database.rows<Counts>(countsSql, [...pairs, committed]);
  if (!counts) throw new Error('the count returned no row');
  return counts;
}

export async function missing(database: PatientPool): Promise<number> {
  const [row] = await database.rows<{ missing: number }>(missingSql, asked);
  return row?.missing ?? 0;
}

/** What went wrong, one line each. */
export async function wrong(database: PatientPool): Promise<string[]> {
  return (await database.rows(wrongSql, pairs)).map((row) => JSON.stringify(row));
}

export function readTicks(database: PatientPool): Promise<Tick[]> {
  return database.rows<Tick & Record<string, unknown>>(ticksSql);
}

export interface TickReport {
  /** Slots that were run to their end. */
  readonly slots: number;
  /** Runs that began while another one was under way. */
  readonly together: readonly string[];
  /** The same beside a process that was stopped meanwhile: it cannot know, and nothing is promised. */
  readonly besidePaused: readonly string[];
}

/** A run ends when it says so, or with its process. */
export function judgeTicks(ticks: readonly Tick[], deaths: readonly Absence[], pauses: readonly Absence[]): TickReport {
  const runs = ticks.map((tick) => ({ ...tick, ended: tick.ended ?? deathOf(tick, deaths) }));
  const together: string[] = [];
  const besidePaused: string[] = [];
  for (const [n, later] of runs.entries())
    for (const earlier of runs.slice(0, n)) {
      if (earlier.ended <= later.started) continue;
      const paused = pauses.some(
        ({ pid, from, to }) => pid === earlier.pid && from < later.started && to > earlier.started,
      );
      (paused ? besidePaused : together).push(`${JSON.stringify(later)} began beside ${JSON.stringify(earlier)}`);
    }
  const slots = new Set(ticks.filter(({ ended }) => ended !== null).map(({ slot }) => slot.getTime())).size;
  return { slots, together, besidePaused };
}

function deathOf({ pid, started }: Tick, deaths: readonly Absence[]): number {
  return deaths.find((death) => death.pid === pid && death.from >= started)?.from ?? Number.POSITIVE_INFINITY;
}
