import {
  DiscardPolicy,
  type JetStreamManager,
  millis,
  nanos,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from 'nats';
import type { Log } from '../../core/throttled-log.js';
import type { JetstreamSettings } from './jetstream.options.js';
import { apiCode, isStreamThere, replicasUnsupported, streamNotFound, subjectsOverlap } from './nats-errors.js';
import { SetupRefused } from './setup-refused.js';
import { subjectCovers, subjectsMeet } from './subjects.js';

const ours = 'nestjs-outbox';

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
  | 'no_ack'
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
    // Without acknowledgements no event would ever leave the queue.
    no_ack: false,
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
  if (refusal) throw refused(refusal);
  const changes = differences(found, wanted);
  if (!update || changes.length === 0) return 'found';
  // Whose description it bears stays: it says whose subjects may be added.
  const { description: _, ...figures } = wanted;
  await understood(manager, settings, () =>
    manager.streams.update(wanted.name, { ...found, ...figures, subjects: subjectsOf(found, wanted) }),
  );
  log.log(`stream '${wanted.name}' was changed: ${changes.join(', ')}`);
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
    await understood(manager, settings, () => manager.streams.add(wanted));
    log.log(`stream '${wanted.name}' was made for ${wanted.subjects.join(', ')}`);
    return 'made';
  } catch (error) {
    // Another process was first, perhaps with other figures; its are looked at at the next start.
    if (isStreamThere(error)) return ensureStream(manager, settings, log, false);
    throw error;
  }
}

/** Errors that the same call would meet for ever are refusals. */
async function understood(
  manager: JetStreamManager,
  settings: JetstreamSettings,
  work: () => Promise<unknown>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    const code = apiCode(error);
    if (code === subjectsOverlap) throw refused(await overlapOf(manager, settings));
    if (code !== replicasUnsupported) throw error;
    throw refused(
      `stream '${settings.stream}' cannot have ${settings.replicas} replicas: the server is no cluster; set jetstream({ replicas: 1 }), or connect to the cluster`,
    );
  }
}

async function overlapOf(manager: JetStreamManager, { stream, prefix }: JetstreamSettings): Promise<string> {
  const wanted = `${prefix}.>`;
  const owners: string[] = [];
  try {
    for await (const { config } of manager.streams.list())
      for (const subject of config.subjects ?? [])
        if (config.name !== stream && subjectsMeet(subject, wanted)) owners.push(`'${config.name}' (${subject})`);
  } catch {
    // Not everybody may list them all; that there is one is what counts.
  }
  return `the subjects ${wanted} meet those of ${owners.length > 0 ? `stream ${owners.join(', ')}` : 'another stream'}; give jetstream({ prefix }) a prefix of your own, or jetstream({ stream }) the name of the stream that has them`;
}

function refused(message: string): SetupRefused {
  return new SetupRefused({ check: 'stream', message });
}

function refusalOf(found: StreamConfig, wanted: Wanted): string | undefined {
  for (const key of ['retention', 'storage'] as const)
    if (found[key] !== wanted[key])
      return `stream '${wanted.name}' has ${key} '${found[key]}' and needs '${wanted[key]}', which cannot be changed; give jetstream({ stream, prefix }) another name and prefix, or remove the stream when nobody needs what it holds (nats stream rm ${wanted.name})`;
  if (covered(found, wanted) || found.description === ours) return undefined;
  const subjects = found.subjects?.join(', ') || 'none (a mirror)';
  return `stream '${wanted.name}' is somebody else's: its subjects are ${subjects} and do not cover ${wanted.subjects.join(', ')}; give jetstream({ stream }) another name`;
}

/** What may be changed in place. Subjects of others that share the stream stay. */
function differences(found: StreamConfig, wanted: Wanted): string[] {
  const keys = ['discard', 'max_age', 'max_bytes', 'duplicate_window', 'num_replicas'] as const;
  const changed = keys
    .filter((key) => found[key] !== wanted[key])
    .map((key) => `${key} ${shown(key, found[key])} → ${shown(key, wanted[key])}`);
  if (found.no_ack) changed.push('no_ack true → false');
  return covered(found, wanted)
    ? changed
    : [...changed, `subjects ${found.subjects.join(', ')} → ${subjectsOf(found, wanted).join(', ')}`];
}

function shown(key: string, value: string | number): string {
  return key === 'max_age' || key === 'duplicate_window' ? `${millis(Number(value)) / 1_000} s` : String(value);
}

function covered(found: StreamConfig, wanted: Wanted): boolean {
  return wanted.subjects.every((subject) => (found.subjects ?? []).some((wide) => subjectCovers(wide, subject)));
}

/** Those of others that share the stream stay; within one stream none may cover another. */
function subjectsOf(found: StreamConfig, wanted: Wanted): string[] {
  const missing = wanted.subjects.filter((one) => !found.subjects.some((wide) => subjectCovers(wide, one)));
  return [...found.subjects.filter((one) => !missing.some((wide) => subjectCovers(wide, one))), ...missing];
}
