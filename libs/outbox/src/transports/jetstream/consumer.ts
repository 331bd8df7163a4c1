import { createHash } from 'node:crypto';
import {
  AckPolicy,
  type ConsumerConfig,
  type ConsumerInfo,
  DeliverPolicy,
  type JetStreamManager,
  nanos,
  ReplayPolicy,
} from 'nats';
import type { Log } from '../../core/throttled-log.js';
import type { ServedDurable } from '../../core/transport.js';
import type { JetstreamSettings } from './jetstream.options.js';
import { apiCode, consumerNotFound, isConsumerThere } from './nats-errors.js';
import { filterOf, filtersOf } from './subjects.js';

/**
 * Messages that all workers together may hold unanswered. Nothing is ever parked with the broker, so it only has to be no
 * limit; in proportion to each process's slots two versions of an app would fight over it.
 */
const mostPending = 10_000;
/** The server's clock and the database's may differ by so much; what is given too early is acknowledged unrun. */
const skewMs = 5 * 60_000;

export interface ConsumerParts {
  readonly manager: JetStreamManager;
  readonly settings: JetstreamSettings;
  readonly installation: string;
  /** Whether the server takes several filters, which is so since 2.10. */
  readonly manyFilters: boolean;
  readonly log: Log;
}

/** A consumer of another outbox bears the name: they would take each other's messages. */
export class ConsumerRefused extends Error {
  readonly code = 'OUTBOX_CONSUMER';

  constructor(durable: string, stream: string) {
    super(
      `durable '${durable}' is on stream '${stream}' already, for another database: the two would take each other's events; give this one another name`,
    );
    this.name = 'ConsumerRefused';
  }
}

/**
 * The durable pull consumer of a durable; returns its name, which is the durable's own. What it filters follows from the
 * database, where the types of all versions of the app are registered, so that old and new pods want the same; all else
 * is never changed. On servers before 2.10 a filter is not changed either (2.9.10 accepts it and then delivers nothing):
 * a successor begins where the old one stood, under a name that the filter decides, and the old one is removed.
 *
 * `from`: what was published before need not be given. Messages that a lost consumer leaves out are the reconciler's.
 */
export async function ensureConsumer(
  parts: ConsumerParts,
  durable: ServedDurable,
  from?: Date,
): Promise<{ name: string; made: boolean }> {
  const wanted = filtersFor(parts, durable);
  const standing = await lookUp(parts, durable.name);
  if (standing && ownerOf(standing) !== parts.installation)
    throw new ConsumerRefused(durable.name, parts.settings.stream);
  if (standing && sameFilters(standing, wanted)) return { name: durable.name, made: false };
  const start = from ?? startOf(durable);
  if (parts.manyFilters) {
    if (standing) return refilter(parts, standing, wanted);
    return { name: durable.name, made: await make(parts, durable.name, wanted, { since: start }) };
  }
  return successor(parts, durable, standing, wanted, start);
}

export function successorName(durable: string, filter: string): string {
  // Capitals, which no durable's name has.
  return `${durable}-${createHash('sha256').update(filter).digest('hex').slice(0, 8).toUpperCase()}`;
}

/** Removes all consumers that ever stood for a durable. */
export async function removeConsumers(
  { manager, settings, installation }: ConsumerParts,
  durable: string,
): Promise<void> {
  for await (const info of manager.consumers.list(settings.stream))
    if (standsFor(durable, info.name) && ownerOf(info) === installation)
      await remove(manager, settings.stream, info.name);
}

function filtersFor({ settings, manyFilters }: ConsumerParts, { types }: ServedDurable): string[] {
  const patterns = types.map(({ pattern }) => pattern);
  return manyFilters ? filtersOf(settings.prefix, patterns) : [filterOf(settings.prefix, patterns)];
}

async function lookUp({ manager, settings }: ConsumerParts, name: string): Promise<ConsumerInfo | undefined> {
  try {
    return await manager.consumers.info(settings.stream, name);
  } catch (error) {
    if (apiCode(error) === consumerNotFound) return undefined;
    throw error;
  }
}

async function refilter({ manager, settings, log }: ConsumerParts, { name }: ConsumerInfo, wanted: string[]) {
  await manager.consumers.update(settings.stream, name, filterConfig(wanted));
  log.log(`consumer '${name}' now gets ${wanted.join(', ')}`);
  return { name, made: false };
}

async function successor(
  parts: ConsumerParts,
  { name: durable }: ServedDurable,
  standing: ConsumerInfo | undefined,
  wanted: string[],
  start: Date | undefined,
) {
  const { manager, settings, log } = parts;
  const before = standing ? [standing] : [];
  for await (const info of manager.consumers.list(settings.stream))
    if (info.name !== durable && standsFor(durable, info.name)) before.push(info);
  const fitting = before.find((info) => sameFilters(info, wanted));
  const name = fitting?.name ?? (before.length === 0 ? durable : successorName(durable, wanted[0] ?? ''));
  // The first that is not settled of the one that is furthest; what another has beyond is settled already.
  const stood = Math.min(...before.map((info) => info.ack_floor.stream_seq + 1));
  const made = fitting
    ? false
    : await make(parts, name, wanted, before.length > 0 ? { sequence: stood } : { since: start });
  for (const info of before) if (info.name !== name) await remove(manager, settings.stream, info.name);
  if (made && before.length > 0)
    log.log(`consumer '${name}' follows ${before.map((info) => info.name).join(', ')}: it gets ${wanted.join(', ')}`);
  return { name, made };
}

async function make(
  { manager, settings, installation, log }: ConsumerParts,
  name: string,
  wanted: string[],
  start: { since?: Date | undefined; sequence?: number },
): Promise<boolean> {
  const config: Partial<ConsumerConfig> = {
    durable_name: name,
    description: `nestjs-outbox ${installation}`,
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(settings.ackWaitMs),
    max_deliver: -1,
    max_ack_pending: mostPending,
    replay_policy: ReplayPolicy.Instant,
    ...startConfig(start),
    ...filterConfig(wanted),
  };
  try {
    await manager.consumers.add(settings.stream, config);
    log.log(`consumer '${name}' was made on stream '${settings.stream}': it gets ${wanted.join(', ')}`);
    return true;
  } catch (error) {
    if (isConsumerThere(error)) return false;
    throw error;
  }
}

function startConfig({ since, sequence }: { since?: Date | undefined; sequence?: number }): Partial<ConsumerConfig> {
  if (sequence !== undefined) return { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: sequence };
  if (!since) return { deliver_policy: DeliverPolicy.All };
  return { deliver_policy: DeliverPolicy.StartTime, opt_start_time: new Date(since.getTime() - skewMs).toISOString() };
}

/** The earliest of its types; what a later type had before is acknowledged unrun. */
function startOf({ types }: ServedDurable): Date | undefined {
  if (types.some(({ since }) => since === null)) return undefined;
  return new Date(Math.min(...types.map(({ since }) => since?.getTime() ?? 0)));
}

function filterConfig(wanted: string[]): Partial<ConsumerConfig> {
  const [one, ...more] = wanted;
  return more.length > 0 ? { filter_subjects: wanted } : { filter_subject: one ?? '' };
}

function sameFilters({ config }: ConsumerInfo, wanted: readonly string[]): boolean {
  const standing = config.filter_subjects?.length ? config.filter_subjects : [config.filter_subject ?? ''];
  return standing.toSorted().join(' ') === wanted.join(' ');
}

function ownerOf({ config }: ConsumerInfo): string | undefined {
  return config.description?.split(' ')[1];
}

function standsFor(durable: string, name: string): boolean {
  return name === durable || (name.startsWith(`${durable}-`) && /^[0-9A-F]{8}$/.test(name.slice(durable.length + 1)));
}

async function remove(manager: JetStreamManager, stream: string, name: string): Promise<void> {
  try {
    await manager.consumers.delete(stream, name);
  } catch (error) {
    if (apiCode(error) !== consumerNotFound) throw error;
  }
}
