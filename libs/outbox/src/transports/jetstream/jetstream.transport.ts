import { setTimeout as pause } from 'node:timers/promises';
import { loopBackoff } from '../../core/backoff.js';
import { ThrottledLog } from '../../core/throttled-log.js';
import type {
  DeliveryReceiver,
  ForwardCounts,
  OutgoingBatch,
  Progress,
  ServedDurable,
  Transport,
  TransportFactory,
  TransportParts,
  TransportProblem,
} from '../../core/transport.js';
import { OutboxBootError } from '../../outbox.errors.js';
import { removeConsumers } from './consumer.js';
import { InFlight } from './in-flight.js';
import { type JetstreamOptions, type JetstreamSettings, resolve } from './jetstream.options.js';
import { Link } from './link.js';
import { BrokerTrouble, brokerWords, isBadRequest, isNotEnabled } from './nats-errors.js';
import { progressOf } from './progress.js';
import { Puller } from './puller.js';
import { Revived } from './revived.js';
import { Sender } from './sender.js';
import { SetupRefused } from './setup-refused.js';
import { Watchdog } from './watchdog.js';

const capabilities = { processes: 'many', firstDelivery: 'message' } as const;
/** A server that runs without JetStream answers as one whose cluster has no leader yet; so long it is waited for. */
const patienceMs = 30_000;
/** What it refuses for what it is asked (more replicas than servers, a limit of the account) may still be a race of two starts. */
const shortPatienceMs = 5_000;

/**
 * First deliveries by NATS JetStream; everything after them is the database's.
 *
 *   queue ── publish, acknowledged ──▶ stream ── a durable pull consumer each ──▶ lanes ──▶ handler ── COMMIT ──▶ ack
 *                                         │ delivered again ──▶ a row of `deliveries`, ack
 *                                         └ lost, expired, never given ──▶ found by the reconciler, a row of `deliveries`
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | the relay, after a publish was stored | the row in the queue, and the message | the next pass publishes again: the same id is a duplicate, or a second message that finds the mark |
 * | a worker with messages | the messages, unanswered | after `ack_wait` another gets them: one interruption, a row, an acknowledgement |
 * | a worker between COMMIT and ack | the mark, and the message | the next one who gets it finds the mark |
 * | the server | what it had stored (it acknowledges before it syncs to disk, unless told otherwise) | the connection comes back by itself; what it lost is the reconciler's |
 * | the stream or a consumer | – | the watchdog makes it again; what it held is the reconciler's |
 */
class JetstreamTransport implements Transport {
  readonly name = 'jetstream';
  readonly capabilities = capabilities;
  private readonly link: Link;
  private watchdog: Watchdog | undefined;
  private sender: Sender | undefined;
  private inFlight: InFlight | undefined;
  private pullers: readonly Puller[] = [];
  private revived: Revived | undefined;
  private stopped = false;

  constructor(
    private readonly settings: JetstreamSettings,
    private readonly parts: TransportParts,
  ) {
    this.link = new Link(settings, parts.log);
  }

  async start(
    receiver: DeliveryReceiver,
    durables: readonly ServedDurable[],
    reread: () => Promise<readonly ServedDurable[]>,
  ): Promise<void> {
    // One whose types were all ended gets nothing, until it is revived.
    const retired = durables.filter(({ types }) => types.length === 0);
    try {
      const serve = await this.open(
        receiver,
        durables.filter((durable) => !retired.includes(durable)),
      );
      this.revived = new Revived(retired, reread, serve, this.parts.log);
      this.revived.start();
    } catch (error) {
      throw error instanceof SetupRefused ? new OutboxBootError(error.problems) : error;
    }
  }

  forward(batch: OutgoingBatch): Promise<ForwardCounts> {
    const { sender } = this;
    if (!sender) throw new BrokerTrouble(new Error('not started'));
    // Before any row is locked: while there is no connection nothing could be sent.
    if (!this.link.connected) throw new BrokerTrouble(new Error(this.link.trouble));
    return batch.publish((events) => sender.send(events));
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await Promise.all([this.revived?.stop(), this.watchdog?.stop(), ...this.pullers.map((puller) => puller.stop())]);
  }

  async close(): Promise<void> {
    this.inFlight?.stop();
    await this.link.close();
  }

  async progress(durable: string): Promise<Progress> {
    const { stream, prefix } = this.settings;
    return progressOf(this.link.manager, stream, prefix, (await this.watchdog?.anyNameOf(durable)) ?? durable);
  }

  async forget(durable: string): Promise<void> {
    if (this.watchdog) await removeConsumers(this.watchdog.consumerParts(), durable);
  }

  problems(): readonly TransportProblem[] {
    return this.watchdog?.problems() ?? [];
  }

  /** Resolves to what serves one more durable. */
  private async open(
    receiver: DeliveryReceiver,
    durables: readonly ServedDurable[],
  ): Promise<(durable: ServedDurable) => Promise<void>> {
    const { link, settings, parts } = this;
    const { log } = parts;
    const installation = await parts.installation();
    await link.open();
    this.sender = new Sender(link, settings, { installation, source: settings.source ?? `urn:uuid:${installation}` });
    const byName = new Map<string, Puller>();
    const changed = (durable: string): void => byName.get(durable)?.reset();
    const openMs = (durable: string): number => byName.get(durable)?.openMs ?? 0;
    const watchdog = new Watchdog({ link, settings, installation, durables, changed, openMs, log });
    this.watchdog = watchdog;
    await this.firstLook(watchdog);
    const inFlight = new InFlight((messages) => receiver.handBack(messages));
    this.inFlight = inFlight;
    const consumerOf = (durable: string): string => watchdog.nameOf(durable);
    const shared = { link, settings, installation, receiver, inFlight, consumerOf, watchdog, log };
    for (const durable of durables) byName.set(durable.name, new Puller(shared, durable));
    this.pullers = [...byName.values()];
    this.listen(receiver, watchdog);
    for (const service of [watchdog, ...this.pullers]) service.start();
    return async (durable) => {
      await watchdog.serve(durable);
      if (this.stopped) return;
      const puller = new Puller(shared, durable);
      byName.set(durable.name, puller);
      this.pullers = [...byName.values()];
      puller.start();
    };
  }

  private listen(receiver: DeliveryReceiver, watchdog: Watchdog): void {
    receiver.onRoom(() => {
      const room = receiver.room();
      for (const puller of this.pullers) puller.offer(room);
    });
    this.link.onUp(() => {
      watchdog.nudge();
      for (const puller of this.pullers) puller.nudge();
    });
    // The package would go on with open requests by itself, when it comes to it: up to five seconds after a server's restart.
    this.link.onDown(() => {
      for (const puller of this.pullers) puller.reset();
    });
  }

  private async firstLook(watchdog: Watchdog): Promise<void> {
    const throttled = new ThrottledLog(this.parts.log, 5_000);
    const begin = performance.now();
    for (let tries = 1; ; tries++) {
      try {
        return await watchdog.ensure(true);
      } catch (error) {
        if (error instanceof SetupRefused || this.link.closed) throw error;
        const waited = performance.now() - begin;
        if (isNotEnabled(error) && waited > patienceMs) throw noJetStream(error);
        if (isBadRequest(error) && waited > shortPatienceMs) throw badRequest(error);
        throttled.warn('start', `waiting for stream '${this.settings.stream}': ${brokerWords(error)}`);
        await pause(loopBackoff(tries, 200, 2_000));
      }
    }
  }
}

function noJetStream(error: unknown): SetupRefused {
  const message = `the server has no JetStream for this account: start it with -js (or jetstream {} in its configuration), enable the account, or set jetstream({ domain }): ${brokerWords(error)}`;
  return new SetupRefused({ check: 'stream', message });
}

function badRequest(error: unknown): SetupRefused {
  const message = `the server does not take the stream or a consumer as it is asked for: ${brokerWords(error)}`;
  return new SetupRefused({ check: 'stream', message });
}

/** Workers on NATS JetStream (nats-server 2.9 or later, package `nats` 2.29); publishers need neither. */
export function jetstream(options: JetstreamOptions = {}): TransportFactory {
  const { settings, problems } = resolve(options);
  return Object.freeze({
    name: 'jetstream',
    capabilities,
    problems,
    create: (parts: TransportParts) => new JetstreamTransport(settings, parts),
  });
}
