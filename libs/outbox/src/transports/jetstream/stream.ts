import { DiscardPolicy, type JetStreamManager, nanos, RetentionPolicy, StorageType, type StreamConfig } from 'nats';
import type { Log } from '../../core/throttled-log.js';
import type { JetstreamSettings } from './jetstream.options.js';
import { apiCode, isStreamThere, streamNotFound, subjectsOverlap } from './nats-errors.js';

const ours = 'nestjs-outbox';

/** A stream that cannot be used as it is, and that nobody here changes: it may be somebody else's. */
export class StreamRefused extends Error {
  readonly code = 'OUTBOX_STREAM';

  constructor(message: string) {
    super(message);
    this.name = 'StreamRefused';
  }
}

type Wanted = Pick<
  StreamConfig,
  | 'name'
  | 'subjects'
  | 'retention'
  | 'storage'
  | 'discard'
  | 'max_age'
  | 'max_bytes'
  | 'duplicate_window'
  | 'num_replicas'
  | 'description'
>;

/**
 * Limits retention: under work-queue and interest the server forgets a message's id with the message, and a second
 * publish of it would come through. Refuse rather than drop when it is full: the queue holds what it refuses.
 */
export function wantedStream(settings: JetstreamSettings): Wanted {
  const { stream, prefix, maxAgeMs, maxBytes, duplicateWindowMs, replicas } = settings;
  return {
    name: stream,
    subjects: [`${prefix}.>`],
    retention: RetentionPolicy.Limits,
    storage: StorageType.File,
    discard: DiscardPolicy.New,
    max_age: nanos(maxAgeMs),
    max_bytes: maxBytes ?? -1,
    duplicate_window: nanos(duplicateWindowMs),
    num_replicas: replicas,
    description: ours,
  };
}

/**
 * The stream as it has to be: made when it is absent, changed where it may be changed and `update` says so, refused where
 * it may not. Nothing is ever deleted: what it holds may be all that others have.
 */
export async function ensureStream(
  manager: JetStreamManager,
  settings: JetstreamSettings,
  log: Log,
  update: boolean,
): Promise<'found' | 'made'> {
  const wanted = wantedStream(settings);
  const found = await lookUp(manager, wanted.name);
  if (!found) return make(manager, settings, log);
  const refusal = refusalOf(found, wanted);
  if (refusal) throw new StreamRefused(refusal);
  const changes = differences(found, wanted);
  if (update && changes.length > 0) {
    await manager.streams.update(wanted.name, { ...found, ...wanted, subjects: subjectsOf(found, wanted) });
    log.log(`stream '${wanted.name}' was changed: ${changes.join(', ')}`);
  }
  return 'found';
}

async function lookUp(manager: JetStreamManager, name: string): Promise<StreamConfig | undefined> {
  try {
    return (await manager.streams.info(name)).config;
  } catch (error) {
    if (apiCode(error) === streamNotFound) return undefined;
    throw error;
  }
}

async function make(manager: JetStreamManager, settings: JetstreamSettings, log: Log): Promise<'found' | 'made'> {
  const wanted = wantedStream(settings);
  try {
    await manager.streams.add(wanted);
    log.log(`stream '${wanted.name}' was made for ${wanted.subjects.join(', ')}`);
    return 'made';
  } catch (error) {
    // Another process was first, perhaps with other figures; its are looked at at the next start.
    if (isStreamThere(error)) return ensureStream(manager, settings, log, false);
    if (apiCode(error) !== subjectsOverlap) throw error;
    const owner = await manager.streams.find(`${settings.prefix}.any.thing.happened`).catch(() => 'another stream');
    throw new StreamRefused(
      `the subjects ${wanted.subjects.join(', ')} belong to ${owner === 'another stream' ? owner : `stream '${owner}'`} already; give jetstream({ prefix }) a prefix of your own, or jetstream({ stream }) the name of that stream`,
    );
  }
}

function refusalOf(found: StreamConfig, wanted: Wanted): string | undefined {
  for (const key of ['retention', 'storage'] as const)
    if (found[key] !== wanted[key])
      return `stream '${wanted.name}' has ${key} '${found[key]}' and needs '${wanted[key]}', which cannot be changed; give jetstream({ stream, prefix }) another name and prefix, or remove the stream when nobody needs what it holds (nats stream rm ${wanted.name})`;
  if (covered(found, wanted) || found.description === ours) return undefined;
  return `stream '${wanted.name}' is somebody else's: its subjects are ${found.subjects.join(', ')} and not ${wanted.subjects.join(', ')}; give jetstream({ stream }) another name`;
}

/** What may be changed in place. Subjects of others that share the stream stay. */
function differences(found: StreamConfig, wanted: Wanted): string[] {
  const keys = ['discard', 'max_age', 'max_bytes', 'duplicate_window', 'num_replicas'] as const;
  const changed = keys
    .filter((key) => found[key] !== wanted[key])
    .map((key) => `${key} ${found[key]} → ${wanted[key]}`);
  return covered(found, wanted)
    ? changed
    : [...changed, `subjects ${found.subjects.join(', ')} → ${subjectsOf(found, wanted).join(', ')}`];
}

function covered(found: StreamConfig, wanted: Wanted): boolean {
  return wanted.subjects.every((subject) => found.subjects.includes(subject));
}

function subjectsOf(found: StreamConfig, wanted: Wanted): string[] {
  return [...new Set([...found.subjects, ...wanted.subjects])];
}
