import { setTimeout as pause } from 'node:timers/promises';
import { BackgroundService } from '../core/background-service.js';
import { jittered } from '../core/backoff.js';
import type { Floor } from '../core/floor.js';
import { Pace } from '../core/pace.js';
import type { Log } from '../core/throttled-log.js';
import type { Transport } from '../core/transport.js';
import type { Nudge, WakeSignal } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { DeadLetterNotice, OutboxSettings } from '../outbox.options.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { LockedRow } from '../tables/queue.table.js';
import { mostRefusals } from './broker-batch.js';
import { type RelayPassCounts, relayPass } from './relay-pass.js';

/**
 * Under load passes stay this far apart: a pass for every commit halved what one process published and handled
 * (1,330 against 1,820 a second). Up to some 250 commits a second each has its pass at once: with a fixed distance
 * between two passes every event waited for the timer from 100 a second on.
 */
const apartMs = 4;
const burst = 5;

/** The loop around the relay's pass: waits for a nudge or the poll, goes on at once while batches come back full. */
export class RelayService extends BackgroundService {
  private readonly connection: InfrastructureConnection;
  private readonly pace = new Pace(apartMs, burst);

  constructor(
    private readonly database: Database,
    private readonly settings: OutboxSettings,
    private readonly transport: Transport,
    private readonly floor: Floor,
    private readonly identity: WorkerIdentity,
    wake: WakeSignal,
    private readonly taker: Nudge,
    /** The takers of other workers. */
    private readonly others: Nudge,
    private readonly gaveUp: (letter: DeadLetterNotice) => Promise<void>,
    log: Log,
  ) {
    super('outbox.relay', log, wake);
    // A lost commit of the relay only means that the rows are forwarded again; a claim's own commit flushes the log
    // up to its own position, and with it the fan-out that came before it.
    this.connection = database.infrastructure('relay', log, ['SET synchronous_commit = off']);
  }

  override async stop(): Promise<void> {
    await super.stop();
    await this.connection.close();
  }

  protected async turn(signal: AbortSignal): Promise<number> {
    const wait = this.pace.next();
    if (wait > 0) await pause(Math.ceil(wait), undefined, { signal });
    const counts = await this.pass();
    if (counts.leftForTakers > 0) this.taker.nudge();
    if (counts.leftForOthers > 0 && this.identity.others > 0) this.others.nudge();
    if (counts.full) return 0;
    return Math.min(jittered(this.settings.pollMs), counts.nextMs ?? Number.POSITIVE_INFINITY);
  }

  private pass(): Promise<RelayPassCounts> {
    return relayPass({
      database: this.database,
      connection: this.connection,
      transport: this.transport,
      floor: this.floor,
      batch: this.settings.relayBatch,
      worker: this.identity.number,
      refused: (first, reason, count) => this.refused(first, reason, count),
      gaveUp: this.gaveUp,
    }).catch((error) => {
      this.identity.doubt();
      // How far it was to reach back went with it.
      this.floor.reset();
      throw error;
    });
  }

  private refused({ type, id, attempts }: LockedRow, reason: string, count: number): void {
    const others = count > 1 ? `, and ${count - 1} more events` : '';
    this.throttled.warn(
      'refused',
      `${this.transport.name} refused ${type ?? ''} ${id}${others} (try ${attempts + 1} of ${mostRefusals}): ${firstLine(reason)}`,
    );
  }
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? '';
}
