import { Client, type ClientBase, type ClientConfig } from 'pg';
import { databaseTrouble } from '../core/database-errors.js';
import { withDeadline } from '../core/deadline.js';
import type { Log } from '../core/throttled-log.js';
import { type BatchResults, sendBatch, useNames } from './wire/batch.js';
import type { Bound } from './wire/statement.js';

/** No call on an infrastructure connection may take longer; the server gives up a little earlier than the client. */
const callMs = 10_000;
const serverSettings = [
  // Statements planned while the hot tables were empty keep a sequential scan: a pass of 500 rows took 560 ms, not 7.
  // Bitmap scans never mark index entries dead: an empty poll took 13 ms, not 0.4. JIT costs 110 to 350 ms a statement.
  'SET enable_seqscan = off',
  'SET enable_bitmapscan = off',
  'SET jit = off',
  `SET statement_timeout = ${callMs - 1_000}`,
  'SET lock_timeout = 5000',
  // A paused process would hide the rows it has locked from every other relay (SKIP LOCKED) until its socket dies.
  'SET idle_in_transaction_session_timeout = 15000',
  "SET default_transaction_isolation = 'read committed'",
  // A limit of the role's would end the worker's lock again and again; dates travel as text.
  'SET idle_session_timeout = 0',
  'SET DateStyle = ISO',
  // The server's own probes: without them a machine that vanished held its worker's lock for two hours. After these it
  // is 25 s. (The client's probes, in the connection's options, notice a server that vanished.)
  'SET tcp_keepalives_idle = 10',
  'SET tcp_keepalives_interval = 5',
  'SET tcp_keepalives_count = 3',
];

/** How to get to the server. */
export interface ConnectionPath extends ClientConfig {
  /**
   * A transaction pooler is in between (only a publisher goes through one): a setting would stay with whatever session
   * the pooler lends next, and prepared statements may not be known there.
   */
  readonly pooled?: boolean;
}

/** What somebody wants to hear of a connection. */
export interface ConnectionHooks {
  /** It was there and is gone. */
  lost?(): void;
  /** It is there, with its settings. */
  connected?(): void;
  /** Another session sent NOTIFY on a channel that the settings LISTEN to. */
  notified?(payload: string): void;
}

/**
 * A dedicated connection, outside the application's pool: it connects when it is needed, forgets itself when it breaks,
 * and gives up on a call that takes too long. It never retries by itself; its loop does.
 */
export class InfrastructureConnection {
  private connecting: Promise<Client> | undefined;
  private closed = false;
  private last: Promise<unknown> = Promise.resolve();

  constructor(
    readonly purpose: string,
    /** Asked when it connects: what is wrong with the DataSource is for the boot gate to say. */
    private readonly config: () => ConnectionPath,
    private readonly log: Log,
    private readonly settings: readonly string[] = [],
    private readonly hooks: ConnectionHooks = {},
  ) {}

  /** Sends statements as one message. Calls take turns: node-postgres is about to refuse a query while another runs. */
  run<const S extends readonly Bound[]>(...statements: S): Promise<BatchResults<S>> {
    const turn = this.last.then(() => this.send(statements));
    this.last = turn.catch(() => {});
    return turn;
  }

  private async send<const S extends readonly Bound[]>(statements: S): Promise<BatchResults<S>> {
    const client = await this.client();
    try {
      return await withDeadline(`the ${this.purpose} connection`, callMs, sendBatch(client, statements));
    } catch (error) {
      // Too late, or an outage that leaves the socket open: after a failover the old server lives on, read-only.
      if (databaseTrouble(error) === 'outage') destroy(client);
      throw error;
    }
  }

  /** Lives on, and keeps no process alive that has nothing else to do. */
  unref(): void {
    // Types of node-postgres leave it out.
    this.connecting?.then((client) => (client as Client & { unref(): void }).unref()).catch(() => {});
  }

  async close(): Promise<void> {
    this.closed = true;
    const client = await this.connecting?.catch(() => undefined);
    this.connecting = undefined;
    if (client) await withDeadline('closing', 1_000, client.end(), () => destroy(client)).catch(() => {});
  }

  private client(): Promise<Client> {
    if (this.closed) return Promise.reject(new Error(`Client was closed: the ${this.purpose} connection`));
    this.connecting ??= this.connect();
    return this.connecting;
  }

  private async connect(): Promise<Client> {
    const { pooled = false, ...config } = this.config();
    const client = new Client(config);
    useNames(client, !pooled);
    const settings = pooled ? 'SELECT 1' : [...serverSettings, ...this.settings].join(';');
    let reported = false;
    const lost = (error?: Error): void => {
      if (reported) return;
      reported = true;
      this.connecting = undefined;
      if (this.closed) return;
      if (error) this.log.warn(`the ${this.purpose} connection was lost: ${error.message}`);
      this.hooks.lost?.();
    };
    // Without a listener an error between two calls would end the process.
    client.on('error', lost);
    client.on('end', () => lost());
    client.on('notification', ({ processId, payload = '' }) => {
      // The same session may send and hear.
      if (processId !== sessionOf(client)) this.hooks.notified?.(payload);
    });
    try {
      // The settings as well: a pooler that has no server accepts the connection and leaves the first query unanswered.
      const ready = client.connect().then(() => client.query(settings));
      await withDeadline(`connecting for ${this.purpose}`, callMs, ready, () => destroy(client));
    } catch (error) {
      reported = true;
      this.connecting = undefined;
      destroy(client);
      throw error;
    }
    this.hooks.connected?.();
    return client;
  }
}

/** The backend's pid, which a client knows and its types leave out. */
function sessionOf(client: Client): number | undefined {
  return (client as Client & { processID?: number }).processID;
}

/** Ends a connection without asking the server, which may not answer any more. */
export function destroy(client: ClientBase): void {
  (client as ClientBase & { connection?: { stream?: { destroy(): void } } }).connection?.stream?.destroy();
}
