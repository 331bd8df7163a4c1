import { isStorable } from '../core/storable.js';
import { InvalidQueryError, UnknownDurableError } from '../outbox.inspect-errors.js';
import { freedAtOnce, type PauseRow } from '../tables/pauses.table.js';
import type { ActionParts } from './acting.js';
import { type ActionOptions, actorOf } from './audit.js';
import { matcherOfType } from './filter.js';
import { momentOf } from './moment.js';

/**
 * One of four. `type` may be a pattern. A tenant's pause holds its deliveries; periodic jobs go on, and run for it.
 */
export type PauseTarget =
  | { readonly durable: string }
  | { readonly type: string }
  | { readonly tenantId: string }
  | { readonly job: string };

export interface PauseOptions extends ActionOptions {
  /** Ends by itself then. Default: never. */
  readonly until?: Date;
}

/** What is paused, since when, until when, by whom and why. */
export interface Pause {
  readonly id: number;
  readonly kind: 'durable' | 'type' | 'tenant' | 'job';
  readonly name: string;
  readonly since: Date;
  readonly until: Date | null;
  readonly by: string | null;
  readonly reason: string | null;
}

interface Target {
  readonly kind: Pause['kind'];
  readonly name: string;
  readonly durable: number | null;
  readonly matcher: string | null;
}

const firstId = '00000000-0000-0000-0000-000000000000';
/** As long as tenants and names of jobs may be. */
const nameLength = 256;

/** The claim obeys what is written here, on every process and whatever its version; nothing else has to know. */
export class Pauses {
  constructor(private readonly parts: ActionParts) {}

  /** Once more for what is paused: reason, end and owner are the new ones, `since` stays. */
  async pause(given: PauseTarget, { until, ...options }: PauseOptions = {}): Promise<Pause> {
    const { by, reason } = actorOf(options, this.parts.who);
    const { pauses } = this.parts.database;
    if (until !== undefined && Number.isNaN(until.getTime())) throw past();
    const { kind, name, durable, matcher } = await this.target(given);
    const end = momentOf('until', until);
    const [, { rows }] = await this.parts.database.onPool(
      pauses.expire(),
      pauses.begin(kind, name, durable, matcher, reason, by, end),
    );
    const [row] = rows;
    if (!row) throw past();
    if (durable !== null) await this.park(row.id, durable);
    return pauseOf(row);
  }

  /** Resolves to false when it was not paused. */
  async resume(given: PauseTarget, options: ActionOptions = {}): Promise<boolean> {
    const { by, reason } = actorOf(options, this.parts.who);
    const { pauses } = this.parts.database;
    const { kind, name, durable } = await this.target(given);
    const [, { rows }] = await this.parts.database.onPool(pauses.expire(), pauses.end(kind, name, durable, by, reason));
    for (const { id } of rows) await this.free(id);
    return rows.length > 0;
  }

  async list(): Promise<readonly Pause[]> {
    const [{ rows }] = await this.parts.database.onPool(this.parts.database.pauses.list());
    return rows.map(pauseOf);
  }

  /** What is due already: claim by claim it would take handlers' places from other durables for as long as it lasts. */
  private async park(pause: number, durable: number): Promise<void> {
    for (let parked = freedAtOnce; parked >= freedAtOnce; ) {
      const [{ rows }] = await this.parts.database.onPool(this.parts.database.pauses.park(pause, durable));
      parked = rows[0]?.parked ?? 0;
    }
  }

  /** The pause is over whatever comes of this: what is left is freed by the sweep of any worker. */
  private async free(pause: number): Promise<void> {
    for (let from: string | null = firstId; from !== null; ) {
      const found: { freed: number; last: string | null } | undefined = await this.chunk(pause, from).catch(
        () => undefined,
      );
      if (!found) return;
      if (found.freed > 0) this.parts.takers.nudge();
      from = found.freed < freedAtOnce ? null : found.last;
    }
  }

  private async chunk(pause: number, from: string) {
    const [{ rows }] = await this.parts.database.onPool(this.parts.database.pauses.free(pause, from));
    return rows[0];
  }

  private async target(given: PauseTarget): Promise<Target> {
    const [[key, name] = [], ...more] = Object.entries(given);
    if (more.length > 0 || typeof name !== 'string' || name === '' || name.length > nameLength || !isStorable(name))
      throw new InvalidQueryError('name one of durable, type, tenantId and job, as a text of at most 256 characters');
    switch (key) {
      case 'durable':
        return this.durable(name);
      case 'type':
        return { kind: 'type', name, durable: null, matcher: matcherOfType(name) };
      case 'tenantId':
        return { kind: 'tenant', name, durable: null, matcher: null };
      case 'job':
        return { kind: 'job', name, durable: null, matcher: null };
      default:
        throw new InvalidQueryError(`'${key}' cannot be paused; a durable, a type, a tenantId and a job can`);
    }
  }

  private async durable(name: string): Promise<Target> {
    const [{ rows }] = await this.parts.database.onPool(this.parts.database.pauses.durable(name));
    const [row] = rows;
    if (!row?.found)
      throw new UnknownDurableError(
        name,
        rows.map((known) => known.name),
      );
    return { kind: 'durable', name: row.name, durable: row.id, matcher: null };
  }
}

/** By the database's clock: a pause that is over when it begins would hold nothing, and say that it does. */
function past(): Error {
  return new InvalidQueryError('a pause ends in the future: give a later `until`, or none');
}

export function pauseOf(row: PauseRow): Pause {
  return {
    id: row.id,
    kind: row.kind,
    name: row.name,
    since: new Date(row.since_ms),
    until: row.until_ms === null ? null : new Date(row.until_ms),
    by: row.paused_by,
    reason: row.reason,
  };
}
