import { setTimeout as pause } from 'node:timers/promises';
import { connect, Events, type JetStreamClient, type JetStreamManager, type NatsConnection } from 'nats';
import { loopBackoff } from '../../core/backoff.js';
import { type Log, ThrottledLog } from '../../core/throttled-log.js';
import type { JetstreamSettings } from './jetstream.options.js';
import { BrokerTrouble, brokerWords, isRefusedLogin, isRefusedTls } from './nats-errors.js';
import { SetupRefused } from './setup-refused.js';

/** One call to the server may take this long. */
export const callMs = 5_000;

/** A connection with what is made of it. */
interface Session {
  readonly connection: NatsConnection;
  readonly client: JetStreamClient;
  readonly manager: JetStreamManager;
}

/**
 * The one connection of a process to the broker:
 *
 *   new ── open ──▶ connecting ⇄ connected ⇄ reconnecting (the package's own, without end)
 *                       ▲             └─ closed for good by the package or the server ─┘
 *                       └──────────────── opened anew, unless we closed it
 *
 * The package gives up after ten tries by default, and its subscriptions then end without a word: a process that looks
 * healthy and does nothing. So it never gives up here, and a connection that ends all the same is followed by another.
 */
export class Link {
  private session: Session | undefined;
  private closing = new AbortController();
  private up = false;
  private downSince: Date | undefined;
  private readonly throttled: ThrottledLog;
  private readonly listeners = { up: new Set<() => void>(), down: new Set<() => void>() };

  constructor(
    private readonly settings: JetstreamSettings,
    private readonly log: Log,
  ) {
    this.throttled = new ThrottledLog(log, 5_000);
  }

  /** Waits for the server, and says so. Rejects when the two do not know each other: that is a wrong set-up. */
  async open(): Promise<void> {
    this.session = await this.connect(true);
  }

  /** Called when the connection is there again. */
  onUp(listener: () => void): void {
    this.listeners.up.add(listener);
  }

  /** Called when it is lost: what was asked on it is not answered any more. */
  onDown(listener: () => void): void {
    this.listeners.down.add(listener);
  }

  get connected(): boolean {
    return this.up;
  }

  /** By us, for good. */
  get closed(): boolean {
    return this.closing.signal.aborted;
  }

  /** What people should know: since when it is not connected. */
  get trouble(): string | undefined {
    if (this.up) return undefined;
    return `not connected to ${this.servers}${this.downSince ? ` since ${this.downSince.toISOString()}` : ''}`;
  }

  /** Throws `BrokerTrouble` while there is no connection: what is published meanwhile would be dropped by the package. */
  get client(): JetStreamClient {
    return this.live().client;
  }

  get manager(): JetStreamManager {
    return this.live().manager;
  }

  /** Major and minor, such as 2.9: what a consumer can be told depends on it. */
  get version(): readonly [number, number] {
    const [major = 0, minor = 0] = (this.live().connection.info?.version ?? '').split('.').map(Number);
    return [major, minor];
  }

  /** Acknowledgements that are still in memory go out, within the time a call may take. */
  async close(): Promise<void> {
    this.closing.abort();
    const { connection } = this.session ?? {};
    if (!connection || connection.isClosed()) return;
    if (this.up) await Promise.race([connection.flush().catch(() => {}), pause(1_000, undefined, { ref: false })]);
    await Promise.race([connection.close().catch(() => {}), pause(1_000, undefined, { ref: false })]);
  }

  private live(): Session {
    if (!this.session || !this.up) throw new BrokerTrouble(new Error(this.trouble));
    return this.session;
  }

  private async connect(first: boolean): Promise<Session> {
    for (let tries = 1; ; tries++) {
      try {
        const session = await this.dial();
        if (this.closing.signal.aborted) {
          await session.connection.close();
          throw new BrokerTrouble(new Error('closed while it connected'));
        }
        this.up = true;
        this.downSince = undefined;
        this.log.log(
          `connected to nats-server ${session.connection.info?.version} at ${session.connection.getServer()}`,
        );
        void this.watch(session.connection);
        void this.replace(session.connection);
        for (const listener of this.listeners.up) listener();
        return session;
      } catch (error) {
        this.downSince ??= new Date();
        if (first && isRefusedLogin(error)) throw this.refusedLogin(error);
        if (first && isRefusedTls(error)) throw this.refusedTls(error);
        this.throttled.warn('connect', `waiting for nats-server at ${this.servers}: ${brokerWords(error)}`);
        // Rejects when it was closed meanwhile.
        await pause(loopBackoff(tries, 200, 2_000), undefined, { signal: this.closing.signal });
      }
    }
  }

  private async dial(): Promise<Session> {
    const { connection: path, domain, apiPrefix } = this.settings;
    const connection = await connect({
      name: 'nestjs-outbox',
      ...path,
      timeout: callMs,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      reconnectJitter: 250,
      reconnectJitterTLS: 500,
      ignoreAuthErrorAbort: true,
      // A peer that vanished is noticed after two or three of these; the package's own two minutes mean four to six.
      pingInterval: 5_000,
      maxPingOut: 2,
      noAsyncTraces: true,
    });
    const options = { timeout: callMs, ...(domain ? { domain } : {}), ...(apiPrefix ? { apiPrefix } : {}) };
    return {
      connection,
      client: connection.jetstream(options),
      manager: await connection.jetstreamManager({ ...options, checkAPI: false }),
    };
  }

  private async watch(connection: NatsConnection): Promise<void> {
    for await (const { type, data } of connection.status()) {
      if (this.closing.signal.aborted) return;
      if (type === Events.Disconnect) {
        this.lost();
        this.throttled.warn('lost', `the connection to nats-server at ${String(data)} was lost`);
      } else if (type === Events.Reconnect) {
        this.up = true;
        this.downSince = undefined;
        this.log.log(`connected to nats-server at ${String(data)} again`);
        for (const listener of this.listeners.up) listener();
      } else if (type === Events.Error) {
        this.throttled.warn(`error ${String(data)}`, `nats-server: ${String(data)}`);
      }
    }
  }

  /** When it ended for good, and not by us. */
  private async replace(connection: NatsConnection): Promise<void> {
    const error = await connection.closed();
    if (this.closing.signal.aborted) return;
    this.lost();
    this.throttled.warn(
      'closed',
      `the connection to nats-server was closed: ${brokerWords(error ?? 'no reason was given')}`,
    );
    try {
      this.session = await this.connect(false);
    } catch {
      // Closed by us meanwhile.
    }
  }

  private lost(): void {
    this.up = false;
    this.downSince ??= new Date();
    for (const listener of this.listeners.down) listener();
  }

  private refusedLogin(error: unknown): SetupRefused {
    const { user, pass, token, authenticator } = this.settings.connection;
    // What was given, never its value: this ends in logs.
    const given = Object.entries({ user, pass, token, authenticator }).flatMap(([name, value]) => (value ? name : []));
    const what = given.length > 0 ? `(given: ${given.join(', ')})` : '(none was given)';
    return new SetupRefused({
      check: 'broker',
      message: `nats-server at ${this.servers} refuses the login ${what}: ${brokerWords(error)}; give jetstream({ user, pass }), { token } or { authenticator } as the server has them`,
    });
  }

  private refusedTls(error: unknown): SetupRefused {
    return new SetupRefused({
      check: 'broker',
      message: `no TLS with nats-server at ${this.servers}: ${brokerWords(error)}; give jetstream({ tls: { caFile } }) the authority of its certificate, and certFile and keyFile where it asks for one of yours`,
    });
  }

  private get servers(): string {
    return [this.settings.connection.servers ?? '127.0.0.1:4222']
      .flat()
      .join(', ')
      .replaceAll(/\/\/[^@/]*@/g, '//');
  }
}
