import type { ConnectionOptions } from 'nats';
import { type Duration, durationRemedy, parseDuration } from '../../core/duration.js';

/** How to reach the servers: as the `nats` package takes it, credentials and nkeys by its `authenticator`. */
export type JetstreamConnection = Pick<
  ConnectionOptions,
  'servers' | 'user' | 'pass' | 'token' | 'authenticator' | 'tls' | 'inboxPrefix'
>;

export interface JetstreamOptions extends JetstreamConnection {
  /** JetStream domain; its API is then at `$JS.<domain>.API`. */
  readonly domain?: string;
  /** Prefix of the JetStream API, where an account imports it under another one. */
  readonly apiPrefix?: string;
  /** The stream's name. Services that share events share it. Default `outbox`. */
  readonly stream?: string;
  /** Events are published under `<prefix>.<type>`. Default `outbox`. */
  readonly prefix?: string;
  /** How long the stream keeps a message. The database is the archive, so no longer than a long weekend. Default 48 h. */
  readonly maxAge?: Duration;
  /** The most bytes that the stream takes; full, it refuses and events wait in the queue. Default: no limit. */
  readonly maxBytes?: number;
  /** How long the server knows the ids of messages, at least 15 minutes: a relay that died before its commit publishes again. Default 15 min. */
  readonly duplicateWindow?: Duration;
  /** Servers of a cluster that hold the stream, 1 to 5. Default 1. */
  readonly replicas?: number;
  /** How long the server waits for a worker's word on a message. A killed worker's messages run elsewhere after it. Default 30 s. */
  readonly ackWait?: Duration;
  /** The `source` of the CloudEvents, a URI reference such as `/billing`. Default `urn:uuid:` and the outbox's own id. */
  readonly source?: string;
}

export interface JetstreamSettings {
  readonly connection: JetstreamConnection;
  readonly domain: string | undefined;
  readonly apiPrefix: string | undefined;
  readonly stream: string;
  readonly prefix: string;
  readonly maxAgeMs: number;
  readonly maxBytes: number | undefined;
  readonly duplicateWindowMs: number;
  readonly replicas: number;
  readonly ackWaitMs: number;
  readonly source: string | undefined;
}

const known = [
  ...['servers', 'user', 'pass', 'token', 'authenticator', 'tls', 'inboxPrefix', 'domain', 'apiPrefix', 'stream'],
  ...['prefix', 'maxAge', 'maxBytes', 'duplicateWindow', 'replicas', 'ackWait', 'source'],
];
const hour = 3_600_000;
const minute = 60_000;

/** The options, with units in their names, and what is wrong with them. */
export function resolve(options: JetstreamOptions): { settings: JetstreamSettings; problems: string[] } {
  const problems = Object.keys(options)
    .filter((key) => !known.includes(key))
    .map((key) => `jetstream(): unknown option '${key}' (known: ${known.join(', ')})`);
  const check = new Checks(problems);
  const { servers, user, pass, token, authenticator, tls, inboxPrefix, domain, apiPrefix, maxBytes, source } = options;
  const given = { servers, user, pass, token, authenticator, tls, inboxPrefix };
  const connection = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const duplicateWindowMs = check.duration('duplicateWindow', options.duplicateWindow, 15 * minute, 15 * minute);
  const settings: JetstreamSettings = {
    connection,
    domain,
    apiPrefix,
    stream: check.fits(
      'stream',
      options.stream ?? 'outbox',
      /^[A-Za-z0-9_-]{1,32}$/,
      'a name of letters, digits, _ and -',
    ),
    prefix: check.fits(
      'prefix',
      options.prefix ?? 'outbox',
      /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,3}$/,
      'one to four tokens',
    ),
    maxAgeMs: check.duration('maxAge', options.maxAge, 48 * hour, duplicateWindowMs),
    maxBytes: maxBytes === undefined ? undefined : check.integer('maxBytes', maxBytes, 1, Number.MAX_SAFE_INTEGER),
    duplicateWindowMs,
    replicas: check.integer('replicas', options.replicas ?? 1, 1, 5),
    ackWaitMs: check.duration('ackWait', options.ackWait, 30_000, 1_000),
    source,
  };
  return { settings, problems };
}

class Checks {
  constructor(private readonly problems: string[]) {}

  fits(name: string, value: string, pattern: RegExp, what: string): string {
    if (typeof value !== 'string' || !pattern.test(value))
      this.problems.push(`jetstream(): option '${name}' is ${JSON.stringify(value)}; it is ${what}`);
    return value;
  }

  integer(name: string, value: number, least: number, most: number): number {
    if (!Number.isSafeInteger(value) || value < least || value > most)
      this.problems.push(
        `jetstream(): option '${name}' is ${JSON.stringify(value)}; it is a whole number from ${least} to ${most}`,
      );
    return value;
  }

  duration(name: string, value: Duration | undefined, fallbackMs: number, leastMs: number): number {
    const milliseconds = value === undefined ? fallbackMs : parseDuration(value);
    if (milliseconds === undefined)
      this.problems.push(
        `jetstream(): option '${name}' is ${JSON.stringify(value)}, which is no duration; ${durationRemedy}`,
      );
    else if (milliseconds < leastMs)
      this.problems.push(
        `jetstream(): option '${name}' is ${JSON.stringify(value)}, less than the ${leastMs / 1_000} seconds it needs`,
      );
    return milliseconds ?? fallbackMs;
  }
}
