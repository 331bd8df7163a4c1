import { AsyncResource } from 'node:async_hooks';
import { databaseTrouble } from '../core/database-errors.js';
import type { Database } from '../tables/database.js';
import type { WaitRow } from '../tables/waits.table.js';
import { outcomeOf, type WaitOutcome } from './wait-outcome.js';
import { WaitPace } from './wait-pace.js';

/** An event that is looked at again and again, and whom to tell. */
export interface Watched {
  readonly id: string;
  /** Told of every look, in turn. */
  readonly seen: (outcome: WaitOutcome) => void;
  readonly failed: (error: unknown) => void;
}

/**
 * Looks at all watched events at once, in one statement, again and again; at nothing while none is watched. A database
 * that is away is waited for.
 */
export class WaitLooks {
  private readonly watched = new Map<Watched, string | undefined>();
  private readonly pace = new WaitPace();
  private timer: NodeJS.Timeout | undefined;
  private looking = false;
  /** Outside the request that happens to wait first: the looks go on for others when it is over. */
  private readonly begin = AsyncResource.bind((pauseMs: number) => {
    this.timer = setTimeout(() => void this.look(), pauseMs);
  });

  constructor(private readonly database: Pick<Database, 'waits' | 'onPool'>) {}

  add(watched: Watched): void {
    this.watched.set(watched, undefined);
    if (!this.looking) this.lookIn(this.pace.atNewcomer());
  }

  remove(watched: Watched): void {
    this.watched.delete(watched);
    if (this.watched.size === 0) clearTimeout(this.timer);
  }

  async once(id: string): Promise<WaitOutcome> {
    const row = (await this.rows([id])).get(id);
    if (!row) throw new Error(`the look at ${id} returned nothing`);
    return outcomeOf(row);
  }

  private lookIn(pauseMs: number): void {
    clearTimeout(this.timer);
    this.begin(pauseMs);
  }

  private async look(): Promise<void> {
    const asked = [...this.watched.keys()];
    const began = performance.now();
    this.looking = true;
    const changed = await this.ask(asked);
    this.looking = false;
    const pause = this.pace.afterLook(changed, performance.now() - began);
    if (this.watched.size === 0) return;
    const newcomers = [...this.watched.keys()].some((one) => !asked.includes(one));
    this.lookIn(newcomers ? this.pace.atNewcomer() : pause);
  }

  /** Whether something has happened. Never throws. */
  private async ask(asked: readonly Watched[]): Promise<boolean> {
    try {
      const rows = await this.rows(asked.map(({ id }) => id));
      return asked.map((watched) => this.tell(watched, rows.get(watched.id))).includes(true);
    } catch (error) {
      if (databaseTrouble(error) === 'other') for (const { failed } of asked) failed(error);
      return false;
    }
  }

  private tell(watched: Watched, row: WaitRow | undefined): boolean {
    if (!row || !this.watched.has(watched)) return false;
    const outcome = outcomeOf(row);
    const as = outcome.kind === 'open' ? outcome.as : outcome.kind;
    const before = this.watched.get(watched);
    this.watched.set(watched, as);
    watched.seen(outcome);
    return outcome.kind === 'ended' || (before !== undefined && before !== as);
  }

  private async rows(ids: readonly string[]): Promise<ReadonlyMap<string, WaitRow>> {
    const [{ rows }] = await this.database.onPool(this.database.waits.look([...new Set(ids)]));
    return new Map(rows.map((row) => [row.id, row]));
  }
}
