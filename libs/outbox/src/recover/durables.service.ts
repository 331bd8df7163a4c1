import { isStorable } from '../core/storable.js';
import type { Log } from '../core/throttled-log.js';
import { DurableServedError, SchemaError } from '../outbox.errors.js';
import type { Database } from '../tables/database.js';
import type { DroppedRow } from '../tables/durables.table.js';
import type { BatchResults } from '../tables/wire/batch.js';
import type { Bound } from '../tables/wire/statement.js';

/** A durable as the database has it. */
export interface DurableState {
  readonly name: string;
  /** Names it had before. */
  readonly formerly: readonly string[];
  readonly state: 'active' | 'retired';
  /** When a worker that handles it was last seen, to about a minute. */
  readonly seenAt: Date | null;
  /** The types and patterns that it gets, and since when; those that were ended are left out. */
  readonly types: readonly { readonly pattern: string; readonly since: Date | null }[];
  /** Deliveries that wait, whether due or not; counted up to 10,001. */
  readonly waiting: number;
}

export interface RetireOptions {
  readonly type?: string;
  /** Who does it and why; both go to `outbox.audit`. Default: host and process id of the app. */
  readonly by?: string;
  readonly reason?: string;
}

/** The operator's side of durables: which there are, and the end of one that has no code any more. */
export class Durables {
  constructor(
    private readonly database: Database,
    private readonly log: Log,
    /** Who acts when nobody says so. */
    private readonly who: string,
  ) {}

  /** All of them, by name. */
  async list(): Promise<DurableState[]> {
    const [{ rows }] = await this.database.onPool(this.database.durables.list());
    return rows.map(({ name, formerly, state, seen_ms, types, waiting }) => ({
      name,
      formerly,
      state,
      seenAt: seen_ms === null ? null : new Date(seen_ms),
      types: types.map(({ pattern, since_ms }) => ({ pattern, since: since_ms === null ? null : new Date(since_ms) })),
      waiting,
    }));
  }

  /**
   * Ends a durable: no event is delivered to it from now on, and what waits for it is dropped, uncounted as failures.
   * Dead letters and marks stay. With `type`, ends only what it gets under that type or pattern, for one that its code has
   * dropped. A boot of older code does not undo it; `revive` does. Resolves to how many deliveries were dropped.
   *
   * Throws `DurableServedError` when a worker that handles it was seen within the last two minutes (not with `type`).
   */
  async retire(durable: string, options: RetireOptions = {}): Promise<{ readonly dropped: number }> {
    const { durables } = this.database;
    const type = options.type ?? null;
    if (!isStorable(durable)) throw new SchemaError(missing(durable, type));
    // Behind the lock that orders registrations and fan-outs: one that does not know of it yet is waited for.
    const [, , { rows }] = await this.database.onPool(
      durables.patience(),
      durables.registrationLock(),
      durables.retire(durable, type, options.by ?? this.who, options.reason ?? null),
    );
    const [found] = rows;
    if (!found || (type !== null && found.matcher === null)) throw new SchemaError(missing(durable, type));
    if (found.served) throw new DurableServedError(durable);
    return { dropped: await this.drop(found.id, found.matcher) };
  }

  /** Makes a retired durable active again, with all its types; it gets what is published from now on. */
  async revive(durable: string): Promise<void> {
    const { durables } = this.database;
    const [, , { rowCount }] = await this.database.onPool(
      durables.patience(),
      durables.registrationLock(),
      durables.revive(durable),
    );
    if (rowCount === 0) throw new SchemaError(missing(durable, null));
  }

  /** Chunk by chunk, on a connection for it: there may be millions. */
  private async drop(id: number, matcher: string | null): Promise<number> {
    const connection = this.database.infrastructure('retire', this.log);
    let dropped = 0;
    try {
      let from: string | null = '00000000-0000-0000-0000-000000000000';
      while (from !== null) {
        const chunk: BatchResults<[Bound<DroppedRow>]> = await connection.run(
          this.database.durables.drop(id, matcher, from),
        );
        const [row] = chunk[0].rows;
        dropped += row?.gone ?? 0;
        from = row?.last ?? null;
      }
    } finally {
      await connection.close();
    }
    return dropped;
  }
}

function missing(durable: string, type: string | null): string {
  return type === null
    ? `there is no durable '${durable}'; Durables.list() names those there are`
    : `there is no durable '${durable}' that gets '${type}'; Durables.list() names the durables and what they get`;
}
