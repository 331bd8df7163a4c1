import type { ConnectionOptions } from 'nats';
import { type Duration, durationRemedy, parseDuration } from '../../core/duration.js';
import { didYouMean } from '../../core/nearest.js';

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
const name = { pattern: /^[A-Za-z0-9_-]{1,32}$/, what: 'a name of letters, digits, _ and -, 32 at most' };
const subject = {
  pattern: /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,3}$/,
  what: 'one to four tokens of letters, digits, _ and -',
};
const token = { pattern: /^[^\s.*>]+$/, what: 'one token of a subject' };
const api = { pattern: /^[^\s.*>]+(\.[^\s.*>]+)*$/, what: "a subject without wildcards, such as '$JS.hub.API'" };
const uri = { pattern: /^[\x21-\x7e]+$/, what: "a URI reference, such as '/billing'" };

/** The options, with units in their names, and what is wrong with them. */
export function resolve(options: JetstreamOptions): { settings: JetstreamSettings; problems: string[] } {
  const check = new Checks();
  const given = check.object(options);
  check.logins(given);
  const { domain, apiPrefix, source } = given;
  if (domain !== undefined && apiPrefix !== undefined)
    check.add("options 'domain' and 'apiPrefix' are both given; give one of them");
  const duplicateWindowMs = check.duration('duplicateWindow', given.duplicateWindow, '15m', '15m', '7d');
  const maxAgeMs = check.duration('maxAge', given.maxAge, '48h', '15m', '365d');
  // The server refuses a stream that knows ids for longer than messages.
  if (maxAgeMs < duplicateWindowMs) check.crossed(given, maxAgeMs, duplicateWindowMs);
  const settings: JetstreamSettings = {
    connection: check.connection(given),
    domain: domain === undefined ? undefined : check.fits('domain', domain, token),
    apiPrefix: apiPrefix === undefined ? undefined : check.fits('apiPrefix', apiPrefix, api),
    stream: check.fits('stream', given.stream ?? 'outbox', name),
    prefix: check.fits('prefix', given.prefix ?? 'outbox', subject),
    maxAgeMs,
    maxBytes:
      given.maxBytes === undefined ? undefined : check.integer('maxBytes', given.maxBytes, 1, Number.MAX_SAFE_INTEGER),
    duplicateWindowMs,
    replicas: check.integer('replicas', given.replicas ?? 1, 1, 5),
    ackWaitMs: check.duration('ackWait', given.ackWait, '30s', '1s', '1h'),
    source: source === undefined ? undefined : check.fits('source', source, uri),
  };
  return { settings, problems: check.problems };
}

class Checks {
  readonly problems: string[] = [];

  add(problem: string): void {
    this.problems.push(`jetstream(): ${problem}`);
  }

  object(options: unknown): JetstreamOptions {
    if (typeof options !== 'object' || options === null) {
      this.add(`its options are ${JSON.stringify(options)}; they are an object`);
      return {};
    }
    for (const key of Object.keys(options))
      if (!known.includes(key))
        this.add(`unknown option '${key}'${didYouMean(key, known)} (known: ${known.join(', ')})`);
    return options;
  }

  /** Only of what is no secret is the value told. */
  logins({ user, pass, token, authenticator }: JetstreamOptions): void {
    for (const [key, value] of Object.entries({ user, pass, token }))
      if (value !== undefined && typeof value !== 'string')
        this.add(`option '${key}' is a ${typeof value}; it is a string`);
    if (authenticator !== undefined && typeof authenticator !== 'function' && !Array.isArray(authenticator))
      this.add(
        `option 'authenticator' is a ${typeof authenticator}; it is a function of the nats package, such as credsAuthenticator(…)`,
      );
  }

  connection(given: JetstreamOptions): JetstreamConnection {
    const { servers, user, pass, token, authenticator, tls, inboxPrefix } = given;
    if (servers !== undefined) this.servers(servers);
    if (tls !== undefined && (typeof tls !== 'object' || tls === null))
      this.add(`option 'tls' is ${JSON.stringify(tls)}; it is an object, such as { caFile }`);
    if (inboxPrefix !== undefined) this.fits('inboxPrefix', inboxPrefix, api);
    const all = { servers, user, pass, token, authenticator, tls, inboxPrefix };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  }

  fits(key: string, value: string, { pattern, what }: { pattern: RegExp; what: string }): string {
    if (typeof value !== 'string' || !pattern.test(value))
      this.add(`option '${key}' is ${JSON.stringify(value)}; it is ${what}`);
    return value;
  }

  integer(key: string, value: number, least: number, most: number): number {
    if (!Number.isSafeInteger(value) || value < least || value > most)
      this.add(`option '${key}' is ${JSON.stringify(value)}; it is a whole number from ${least} to ${most}`);
    return value;
  }

  duration(key: string, value: Duration | undefined, fallback: Duration, least: Duration, most: Duration): number {
    const milliseconds = parseDuration(value ?? fallback);
    const of = (duration: Duration): number => parseDuration(duration) ?? 0;
    const is = `option '${key}' is ${JSON.stringify(value)}`;
    if (milliseconds === undefined) this.add(`${is}, which is no duration; ${durationRemedy}`);
    else if (milliseconds < of(least)) this.add(`${is}; at least '${least}'`);
    else if (milliseconds > of(most)) this.add(`${is}; at most '${most}'`);
    else return milliseconds;
    return of(fallback);
  }

  crossed({ maxAge, duplicateWindow }: JetstreamOptions, maxAgeMs: number, windowMs: number): void {
    const minutes = (milliseconds: number): string => `${milliseconds / 60_000} min`;
    if (duplicateWindow === undefined)
      this.add(`option 'maxAge' is ${JSON.stringify(maxAge)}, less than the duplicate window (${minutes(windowMs)})`);
    else
      this.add(
        `option 'duplicateWindow' is ${JSON.stringify(duplicateWindow)}, more than the max age (${minutes(maxAgeMs)}): raise maxAge too`,
      );
  }

  private servers(value: unknown): void {
    const list = [value].flat();
    if (list.length === 0 || !list.every((each) => typeof each === 'string' && each !== ''))
      this.add(
        `option 'servers' is ${JSON.stringify(value)}; it is an address such as 'nats://127.0.0.1:4222', or a list of them`,
      );
    else if (list.some((each) => String(each).includes('@')))
      this.add("option 'servers' has a login in it, which the nats package passes over; give user and pass, or token");
  }
}
