import type { ConsumerInfo } from 'nats';
import { BackgroundService } from '../../core/background-service.js';
import type { Log } from '../../core/throttled-log.js';
import type { ServedDurable, TransportProblem } from '../../core/transport.js';
import { type ConsumerParts, ensureConsumer, type Found, remakeConsumer, standingName, startOf } from './consumer.js';
import type { JetstreamSettings } from './jetstream.options.js';
import type { Link } from './link.js';
import { brokerWords } from './nats-errors.js';
import { SetupRefused } from './setup-refused.js';
import { type Stall, StallWatch } from './stall.js';
import { ensureStream } from './stream.js';

const everyMs = 3_000;
/** A consumer that was lost begins this far back; what lies before is the reconciler's, as far as it is in the database. */
const backMs = 10 * 60_000;

export interface WatchdogParts {
  readonly link: Link;
  readonly settings: JetstreamSettings;
  readonly installation: string;
  readonly durables: readonly ServedDurable[];
  /** A durable's consumer is another one now. */
  readonly changed: (durable: string) => void;
  /** For how long a request for a durable's messages has been open in vain. */
  readonly openMs: (durable: string) => number;
  readonly log: Log;
}

/**
 * Sees to it that what this process needs is there: nothing tells a client that its consumer, its stream or what they
 * held is gone, or that the consumer gives nothing any more; it only gets no messages.
 */
export class Watchdog extends BackgroundService {
  private readonly names = new Map<string, string>();
  private readonly refused = new Set<string>();
  private readonly stalls = new StallWatch();
  private trouble: string | undefined;
  private durables: readonly ServedDurable[];

  constructor(private readonly parts: WatchdogParts) {
    super('outbox.jetstream', parts.log);
    this.durables = parts.durables;
  }

  /** One more, from when its types begin. */
  async serve(durable: ServedDurable): Promise<void> {
    await this.ensureOne(durable, undefined);
    this.durables = [...this.durables, durable];
  }

  nudge(): void {
    this.wake.nudge();
  }

  nameOf(durable: string): string {
    return this.names.get(durable) ?? durable;
  }

  /** Also of a durable that only other processes serve. */
  async anyNameOf(durable: string): Promise<string> {
    return this.names.get(durable) ?? (await standingName(this.consumerParts(), durable));
  }

  /** Somebody else has a consumer under its name: whatever is taken from it would be missing there. */
  isRefused(durable: string): boolean {
    return this.refused.has(durable);
  }

  problems(): readonly TransportProblem[] {
    const message = this.parts.link.trouble ?? this.trouble;
    if (message === undefined) return [];
    const meanwhile =
      'what is published waits in the queue, retries go on; it comes back by itself, and if not, the log says why';
    return [{ status: 'down', message: `${message}; ${meanwhile}` }];
  }

  /** Everything as it has to be. At a start figures are changed, and a wrong set-up is refused; later what is lost is made again. */
  async ensure(atStart: boolean): Promise<void> {
    const { link, settings, log } = this.parts;
    const stream = await ensureStream(link.manager, settings, log, atStart);
    if (stream === 'made' && !atStart)
      log.warn(`stream '${settings.stream}' was gone: what it held is looked for in the database`);
    const standing = new Map<ServedDurable, ConsumerInfo>();
    const refusals: SetupRefused[] = [];
    const errors: unknown[] = [];
    for (const durable of this.durables) {
      // One that cannot be had must not keep the others from being made again.
      const found = await this.ensureOne(durable, atStart ? undefined : beginningAgain(durable)).catch((error) => {
        errors.push(error);
        return undefined;
      });
      if (found instanceof SetupRefused) refusals.push(found);
      else if (found?.info) standing.set(durable, found.info);
    }
    if (standing.size > 0) await this.endStalls(standing);
    if (refusals.length > 0) throw new SetupRefused(...refusals.flatMap(({ problems }) => problems));
    if (errors.length > 0) throw errors[0];
  }

  consumerParts(): ConsumerParts {
    const { link, settings, installation, log } = this.parts;
    const [major, minor] = link.version;
    return { manager: link.manager, settings, installation, manyFilters: major > 2 || minor >= 10, log };
  }

  protected async turn(): Promise<number> {
    if (!this.parts.link.connected) return everyMs;
    try {
      await this.ensure(false);
      this.trouble = undefined;
    } catch (error) {
      if (this.stopping) return 0;
      this.trouble = `the stream or its consumers cannot be had: ${brokerWords(error)}`;
      this.throttled.warn('ensure', this.trouble);
    }
    return everyMs;
  }

  private async ensureOne(durable: ServedDurable, from: Date | undefined): Promise<Found | SetupRefused> {
    const before = this.names.get(durable.name);
    const sought = { durable, name: before ?? durable.name, from };
    try {
      const found = await ensureConsumer(this.consumerParts(), sought);
      const { name, made } = found;
      this.names.set(durable.name, name);
      this.refused.delete(durable.name);
      if (made && before === name) this.parts.log.warn(`consumer '${name}' was gone and was made again`);
      if (before !== undefined && (made || before !== name)) this.parts.changed(durable.name);
      return found;
    } catch (error) {
      if (!(error instanceof SetupRefused)) throw error;
      this.refused.add(durable.name);
      this.parts.changed(durable.name);
      return error;
    }
  }

  /** Never the stream: what it holds may be all that others have. */
  private async endStalls(standing: ReadonlyMap<ServedDurable, ConsumerInfo>): Promise<void> {
    const { link, settings, changed, openMs, log } = this.parts;
    const { state } = await link.manager.streams.info(settings.stream);
    for (const [durable, info] of standing) {
      const stall = this.stalls.judge(info, state.last_seq, openMs(durable.name));
      if (!stall) continue;
      // The numbers of one that is ahead mean nothing in this stream.
      const from = stall === 'ahead' ? { since: beginningAgain(durable) } : { sequence: info.ack_floor.stream_seq + 1 };
      if (!(await remakeConsumer(this.consumerParts(), info, from))) continue;
      log.warn(`consumer '${info.name}' ${whatOf[stall]}, and was made again`);
      changed(durable.name);
    }
  }
}

/** Where one begins that was lost. Of other databases' events ours has nothing: with those, where its types did. */
function beginningAgain(durable: ServedDurable): Date | undefined {
  return durable.foreign ? startOf(durable) : new Date(Date.now() - backMs);
}

const whatOf: Readonly<Record<Stall, string>> = {
  ahead: 'knew more than its stream holds (the server lost messages)',
  stalled: 'gave nothing of what waits',
};
