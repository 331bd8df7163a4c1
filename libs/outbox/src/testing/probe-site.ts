import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Client } from 'pg';
import type { TransportFactory } from '../core/transport.js';
import { Cable } from './cable.js';
import { bootProbe, type ProbeApp, type ProbeOptions } from './probe-app.js';

/** What the suites need of a test runner; Jest and Vitest have it as globals. */
export interface TestApi {
  describe(name: string, body: () => void): void;
  it(name: string, body: () => Promise<void>, timeoutMs?: number): void;
  beforeEach(body: () => Promise<void>): void;
  afterEach(body: () => Promise<void>): void;
}

/** An empty database for one test, on a real server. */
export interface TransportSetup {
  database(): Promise<{ url: string; drop(): Promise<void> }>;
}

/** The patience of the suites on a busy machine, no promise of a transport's. */
export const slowMs = 180_000;

/** `url`: another way to the database of the site. */
export type SiteAppOptions = Omit<ProbeOptions, 'url' | 'transport'> & { readonly url?: string };

/** A database of its own, and the apps on it. */
export class ProbeSite {
  private client: Client | undefined;
  private dropDatabase: (() => Promise<void>) | undefined;
  private url = '';
  private run = '';
  private readonly apps = new Set<ProbeApp>();
  private readonly loops: (() => Promise<void>)[] = [];
  private readonly cables: Cable[] = [];

  constructor(
    private readonly makeTransport: (run: string) => TransportFactory,
    private readonly setup: TransportSetup,
  ) {}

  async open(): Promise<void> {
    const { url, drop } = await this.setup.database();
    this.url = url;
    this.run = randomUUID().slice(0, 8);
    this.dropDatabase = drop;
    this.client = new Client({ connectionString: url, application_name: 'conformance' });
    await this.client.connect();
  }

  async close(): Promise<void> {
    // Those of a test that failed.
    for (const stop of this.loops.splice(0)) await stop();
    await Promise.all([...this.apps].map((app) => this.shut(app)));
    for (const cable of this.cables.splice(0)) await cable.close();
    await this.client?.end();
    await this.dropDatabase?.();
  }

  async app(name: string, options: SiteAppOptions): Promise<ProbeApp> {
    const app = await bootProbe(name, { url: this.url, ...options, transport: this.makeTransport(this.run) });
    this.apps.add(app);
    return app;
  }

  /** For an app that is to be cut off from the database. */
  async cable(): Promise<Cable> {
    const cable = await Cable.to(this.url);
    this.cables.push(cable);
    return cable;
  }

  async shut(app: ProbeApp): Promise<void> {
    this.apps.delete(app);
    await app.close();
  }

  async rows<R>(sql: string, values: readonly unknown[] = []): Promise<R[]> {
    return (await this.client?.query(sql, [...values]))?.rows ?? [];
  }

  async column(sql: string): Promise<unknown[]> {
    const result = await this.client?.query({ text: sql, rowMode: 'array' });
    return result?.rows.map((row) => row[0]) ?? [];
  }

  async terminate(which: string): Promise<void> {
    await this.column(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND (${which})`,
    );
  }

  /** Each pause is a little longer than the one before: a busy machine may need longer to come back at all. */
  repeatedly(work: () => Promise<void>, everyMs: number): { stop(): Promise<void> } {
    let going = true;
    const loop = (async () => {
      for (let pauseMs = everyMs; going; pauseMs *= 1.1) {
        await work();
        await pause(pauseMs);
      }
    })();
    const stop = async (): Promise<void> => {
      going = false;
      await loop;
    };
    this.loops.push(stop);
    return { stop };
  }
}
