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
import { SetupRefused } from './setup-refused.js';
import { filterOf, filtersOf, patternOf, subjectCovers } from './subjects.js';

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

/** A durable, and what is known of its consumer. */
export interface Sought {
  readonly durable: ServedDurable;
  /** The name it had when it was last looked at. */
  readonly name: string;
  /** For one that has to be made: what was published before need not be given. Default: what its types say. */
  readonly from?: Date | undefined;
}

export interface Found {
  readonly name: string;
  readonly made: boolean;
  /** How it stood, when it was there. */
  readonly info?: ConsumerInfo;
}

/** Where a consumer begins: at a message, at a time, or with everything there is. */
export interface ConsumerStart {
  readonly sequence?: number;
  readonly since?: Date | undefined;
}

/**
 * The durable pull consumer of a durable. Its settings are written once: two versions of an app that run side by side
 * would write them by turns. One whose filters cover what this process wants is good, whatever else it brings; where none
 * does, a successor begins where the old one stood, under a name that its filters decide, with the old one's filters
 * beside the new ones, and the old one is removed. (A filter could be changed in place since 2.9.12, but what was
 * published between the registration of a type and the change would be passed over.) So filters never become fewer: a
 * process that still knows the old ones would want them back.
 */
export async function ensureConsumer(parts: ConsumerParts, sought: Sought): Promise<Found> {
  const { durable, name } = sought;
  const wanted = durable.types.map(({ pattern }) => pattern);
  const known = await lookUp(parts, name);
  if (known && ownerOf(known) === parts.installation && covers(parts, known, wanted))
    return { name, made: false, info: known };
  const standing = await allStanding(parts, durable.name);
  if (standing.some((info) => ownerOf(info) !== parts.installation)) throw takenBySomebody(parts, durable.name);
  const fitting = standing.find((info) => covers(parts, info, wanted));
  if (!fitting) return successor(parts, sought, standing, wanted);
  // Whoever made it may have died before it removed the one it follows.
  const followed = standing.filter((info) => info !== fitting && covers(parts, fitting, patternsIn(parts, info)));
  for (const { name: old } of followed) await remove(parts, old);
  return { name: fitting.name, made: false, info: fitting };
}

/** The same consumer once more, from there on; false when another process was first. */
export async function remakeConsumer(
  parts: ConsumerParts,
  { name, created, ...info }: ConsumerInfo,
  start: ConsumerStart,
): Promise<boolean> {
  if ((await lookUp(parts, name))?.created !== created) return false;
  await remove(parts, name);
  return make(parts, name, filtersIn(info), start);
}

/** The name under which a durable's consumer stands that another process looks after. */
export async function standingName(parts: ConsumerParts, durable: string): Promise<string> {
  let latest: ConsumerInfo | undefined;
  for (const info of await allStanding(parts, durable))
    if (ownerOf(info) === parts.installation && (!latest || info.created > latest.created)) latest = info;
  return latest?.name ?? durable;
}

/** The first of a durable bears its name; those after it one more token, by their filters. */
export function successorName(durable: string, filters: readonly string[]): string {
  // A capital, which no durable's name has: 'report-20261129' is a durable of its own.
  return `${durable}-F${createHash('sha256').update(filters.join(' ')).digest('hex').slice(0, 8)}`;
}

/** Removes all consumers that ever stood for a durable. */
export async function removeConsumers(parts: ConsumerParts, durable: string): Promise<void> {
  for (const info of await allStanding(parts, durable))
    if (ownerOf(info) === parts.installation) await remove(parts, info.name);
}

async function successor(
  parts: ConsumerParts,
  { durable, from }: Sought,
  standing: readonly ConsumerInfo[],
  wanted: readonly string[],
): Promise<Found> {
  const { prefix } = parts.settings;
  const patterns = [...standing.flatMap((info) => patternsIn(parts, info)), ...wanted];
  const filters = parts.manyFilters ? filtersOf(prefix, patterns) : [filterOf(prefix, patterns)];
  if (standing.length === 0) {
    const made = await make(parts, durable.name, filters, { since: from ?? startOf(durable) });
    // Somebody was first: whose it is, and what it gets, shows at a second look.
    return made ? { name: durable.name, made } : ensureConsumer(parts, { durable, name: durable.name, from });
  }
  const name = successorName(durable.name, filters);
  // The first that is not settled of the one that is furthest behind; what another has beyond is settled already.
  const stood = Math.min(...standing.map((info) => info.ack_floor.stream_seq + 1));
  const made = await make(parts, name, filters, { sequence: stood });
  for (const info of standing) if (info.name !== name) await remove(parts, info.name);
  if (made) parts.log.log(`consumer '${name}' follows ${standing.map((info) => info.name).join(', ')}`);
  return { name, made };
}

async function make(
  { manager, settings, installation, log }: ConsumerParts,
  name: string,
  filters: readonly string[],
  start: ConsumerStart,
): Promise<boolean> {
  const [one = '', ...more] = filters;
  try {
    await manager.consumers.add(settings.stream, {
      durable_name: name,
      description: `nestjs-outbox ${installation}`,
      ack_policy: AckPolicy.Explicit,
      ack_wait: nanos(settings.ackWaitMs),
      max_deliver: -1,
      max_ack_pending: mostPending,
      replay_policy: ReplayPolicy.Instant,
      ...startConfig(start),
      ...(more.length > 0 ? { filter_subjects: [...filters] } : { filter_subject: one }),
    });
    log.log(`consumer '${name}' was made on stream '${settings.stream}': it gets ${filters.join(', ')}`);
    return true;
  } catch (error) {
    if (!isConsumerThere(error)) throw error;
  }
  return false;
}

function startConfig({ sequence, since }: ConsumerStart): Partial<ConsumerConfig> {
  if (sequence !== undefined) return { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: sequence };
  if (!since) return { deliver_policy: DeliverPolicy.All };
  return { deliver_policy: DeliverPolicy.StartTime, opt_start_time: new Date(since.getTime() - skewMs).toISOString() };
}

/** The earliest of its types; what a later type had before is acknowledged unrun. */
export function startOf({ types }: ServedDurable): Date | undefined {
  if (types.some(({ since }) => since === null)) return undefined;
  return new Date(Math.min(...types.map(({ since }) => since?.getTime() ?? 0)));
}

async function lookUp({ manager, settings }: ConsumerParts, name: string): Promise<ConsumerInfo | undefined> {
  try {
    return await manager.consumers.info(settings.stream, name);
  } catch (error) {
    if (apiCode(error) === consumerNotFound) return undefined;
    throw error;
  }
}

async function allStanding({ manager, settings }: ConsumerParts, durable: string): Promise<ConsumerInfo[]> {
  const standing: ConsumerInfo[] = [];
  for await (const info of manager.consumers.list(settings.stream))
    if (standsFor(durable, info.name)) standing.push(info);
  return standing;
}

function standsFor(durable: string, name: string): boolean {
  return name === durable || (name.startsWith(`${durable}-`) && /^F[0-9a-f]{8}$/.test(name.slice(durable.length + 1)));
}

function covers({ settings }: ConsumerParts, info: ConsumerInfo, wanted: readonly string[]): boolean {
  const filters = filtersIn(info);
  return wanted.every((pattern) => filters.some((filter) => subjectCovers(filter, `${settings.prefix}.${pattern}`)));
}

function filtersIn({ config }: Pick<ConsumerInfo, 'config'>): string[] {
  return config.filter_subjects?.length ? config.filter_subjects : [config.filter_subject ?? '>'];
}

function patternsIn({ settings }: ConsumerParts, info: ConsumerInfo): string[] {
  return filtersIn(info).flatMap((filter) => patternOf(settings.prefix, filter) ?? []);
}

function ownerOf({ config }: ConsumerInfo): string | undefined {
  return config.description?.split(' ')[1];
}

/** They would take each other's messages. */
function takenBySomebody({ settings: { stream } }: ConsumerParts, durable: string): SetupRefused {
  return new SetupRefused({
    check: 'consumer',
    message: `durable '${durable}' is on stream '${stream}' already, for another database: the two would take each other's events; give this one another name, or, when that database is gone, remove its consumer (nats consumer rm ${stream} ${durable})`,
  });
}

async function remove({ manager, settings }: ConsumerParts, name: string): Promise<void> {
  try {
    await manager.consumers.delete(settings.stream, name);
  } catch (error) {
    if (apiCode(error) !== consumerNotFound) throw error;
  }
}
