import { BackgroundService } from '../core/background-service.js';
import { jittered } from '../core/backoff.js';
import type { Log } from '../core/throttled-log.js';
import type { Progress, Transport } from '../core/transport.js';
import type { Nudge } from '../core/wake-signal.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { LookedAtRow, ReconciledRow } from '../tables/reconcile.table.js';
import { interval } from '../tables/wire/statement.js';

const firstId = '00000000-0000-0000-0000-000000000000';
/** Events in one statement; 5,000 with their look-ups take some 30 ms. */
const chunk = 5_000;

/**
 * Looks for what a broker lost: events that have left the queue and have neither a verdict nor a row for a durable that
 * is to get them. They become rows, and with that the database's.
 *
 * Each durable has a watermark, `verified_to`: below it everything has a verdict or a row, so only what is newer is
 * looked at, up to where the broker still has something to give. A row that is made too early (the message is on its
 * way) costs one look at the mark and loses nothing, so a wrong guess is harmless; what is older than a day is looked at
 * whatever the broker says, so that no day is forgotten before; and once a day everything is looked at, for what was
 * committed behind the watermark.
 *
 * Workers without a broker look, too, at durables that one has served: all that it may still have becomes rows. They go
 * on for two days after the last look at everything by a worker that has one: who published to it last is not known, and
 * a single look covers nothing of the moments before it.
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | after a durable was claimed for a look | the watermark, where it was | the next look, anybody's |
 * | between two chunks | the rows of the first | the next look finds them there, and goes on |
 */
export class ReconcilerService extends BackgroundService {
  private readonly brokered: boolean;

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
    private readonly transport: Transport,
    /** How often a durable is looked at, and how long something may be under way before it is looked for. */
    private readonly everyMs: number,
    private readonly takers: Nudge,
    log: Log,
  ) {
    super('outbox.reconciler', log);
    this.brokered = transport.capabilities.firstDelivery === 'message';
  }

  protected async turn(): Promise<number> {
    // Every worker asks; whoever comes first after most of the time looks.
    const { reconcile } = this.database;
    const [{ rows }] = await this.connection.run(reconcile.claim(interval(this.everyMs * 0.8), String(this.brokered)));
    const errors: unknown[] = [];
    // All of them were claimed: one that cannot be looked at must not keep the others from it.
    for (const row of rows) if (!this.stopping) await this.look(row).catch((error) => errors.push(error));
    if (errors.length > 0) throw errors[0];
    return jittered(this.everyMs);
  }

  private async look({ id, name, state, cursor, all }: LookedAtRow): Promise<void> {
    const { reconcile } = this.database;
    if (state === 'retired') {
      await this.transport.forget?.(name);
      await this.connection.run(this.brokered ? reconcile.forgotten(id) : reconcile.unserved(id));
      return;
    }
    const [{ rows }] = await this.connection.run(reconcile.bound(interval(this.everyMs)));
    const [bound] = rows;
    if (!bound) throw new Error('the bound statement returned no row');
    // In between: what has left the queue by the bound the broker has by now, and what it says is settled has its mark
    // when the events are read. Asked before the bound, it would not know what a relay that was held up gave it since.
    const progress = await this.progress(name);
    const to = upTo(progress, bound.quiet, bound.overdue, this.everyMs);
    const found = await this.chunks(id, all || cursor === null ? firstId : cursor, to);
    await this.connection.run(
      !this.brokered && all ? reconcile.unserved(id) : reconcile.verified(id, to, String(this.brokered && all)),
    );
    if (found === 0) return;
    this.throttled.warn(
      name,
      this.brokered
        ? `the broker lost ${found} events for durable '${name}': they are delivered from the database`
        : `a broker that this process does not use has ${found} events for durable '${name}': they are delivered from the database`,
    );
    this.takers.nudge();
  }

  private async progress(durable: string): Promise<Progress> {
    try {
      return (await this.transport.progress?.(durable)) ?? { kind: 'idle' };
    } catch {
      // Whoever keeps the connection to the broker says what is wrong with it.
      return { kind: 'unknown' };
    }
  }

  private async chunks(durable: number, from: string, to: string): Promise<number> {
    let found = 0;
    for (let at: string | null = from; at !== null; ) {
      if (this.stopping) throw new Error('stopped in the middle of a look');
      const row: ReconciledRow | undefined = await this.chunk(durable, at, to);
      found += row?.found ?? 0;
      at = row && row.looked >= chunk ? row.last : null;
    }
    return found;
  }

  private async chunk(durable: number, from: string, to: string): Promise<ReconciledRow | undefined> {
    const [{ rows }] = await this.connection.run(this.database.reconcile.chunk(durable, from, to, chunk));
    return rows[0];
  }
}

/** The id below which nothing is under way any more. Ids begin with their time, so the smaller one is the earlier. */
function upTo(progress: Progress, quiet: string, overdue: string, marginMs: number): string {
  if (progress.kind === 'idle') return quiet;
  if (progress.kind === 'unknown') return overdue;
  const before = earlier(progress.eventId, marginMs);
  const open = before < quiet ? before : quiet;
  return open > overdue ? open : overdue;
}

/**
 * The broker has events in the order of their publication, and not of their ids: those of one moment have theirs at
 * random, and a transaction that took long brings older ones later. What waits there still would be taken for lost.
 */
function earlier(id: string, ms: number): string {
  const time = Math.max(0, Number.parseInt(id.replace('-', '').slice(0, 12), 16) - ms);
  const hex = time.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}
