import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { describe, it } from '@jest/globals';
import { Client } from 'pg';
import { ended } from 'throwaway-nats';
import { eventually } from './eventually.js';

/** A real PgBouncer in front of one database, with what a test sets of its pgbouncer.ini. */
export interface Pgbouncer {
  /** The database behind it, through it. */
  readonly url: string;
  /** Its console: `SHOW POOLS` and the like. */
  console(command: string): Promise<Record<string, unknown>[]>;
  stop(): Promise<void>;
}

export async function startPgbouncer(
  target: string,
  settings: Readonly<Record<string, string | number>> = {},
): Promise<Pgbouncer> {
  const binary = findPgbouncer();
  if (!binary) throw new Error(remedy);
  const to = new URL(target);
  const folder = await mkdtemp(join(tmpdir(), 'outbox-pgbouncer-'));
  await chmod(folder, 0o755);
  const port = await freePort();
  const file = join(folder, 'pgbouncer.ini');
  await writeFile(file, configuration(to, port, settings));
  // It refuses to run as root; this account is there on every Linux.
  const account = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const child = spawn(binary, [...account, file], { stdio: ['ignore', 'ignore', 'pipe'] });
  const killAtExit = (): boolean => child.kill('SIGKILL');
  process.once('exit', killAtExit);
  const noise: string[] = [];
  child.stderr.on('data', (data) => noise.push(String(data)));
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  const admin = new URL(url);
  admin.pathname = '/pgbouncer';
  const ask = (command: string) => onConsole(admin.href, command);
  await eventually('pgbouncer answers', () => {
    if (child.exitCode !== null) throw new Error(`it exited with ${child.exitCode}: ${noise.join('')}`);
    return ask('SHOW VERSION');
  });
  return {
    url: url.href,
    console: ask,
    stop: async () => {
      process.off('exit', killAtExit);
      // An immediate shutdown.
      await ended(child, 'SIGTERM');
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function configuration(to: URL, port: number, settings: Readonly<Record<string, string | number>>): string {
  const behind = {
    host: to.hostname,
    port: to.port || 5432,
    user: decodeURIComponent(to.username),
    password: decodeURIComponent(to.password),
  };
  const all = {
    listen_addr: '127.0.0.1',
    listen_port: port,
    unix_socket_dir: '',
    auth_type: 'any',
    admin_users: behind.user,
    ...settings,
  };
  const words = Object.entries(behind).map(([key, value]) => `${key}='${String(value).replaceAll("'", "''")}'`);
  const lines = Object.entries(all).map(([key, value]) => `${key} = ${value}`);
  return `[databases]\n* = ${words.join(' ')}\n[pgbouncer]\n${lines.join('\n')}\n`;
}

async function onConsole(url: string, command: string): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(command)).rows;
  } finally {
    await client.end();
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address ? address.port : 0;
}

const remedy = 'there is no pgbouncer: apt-get install pgbouncer, or name one in PGBOUNCER_BIN';

/** PGBOUNCER_BIN, then the PATH, then where Debian puts it. */
export function findPgbouncer(): string | undefined {
  const { PGBOUNCER_BIN: named, PATH: path = '' } = process.env;
  const candidates = named
    ? [named]
    : [...path.split(delimiter).filter(Boolean), '/usr/sbin'].map((folder) => join(folder, 'pgbouncer'));
  return candidates.find((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** With OUTBOX_TEST_INSTALL=apt and root's rights it is fetched where it is missing. */
function install(): void {
  if (process.env['OUTBOX_TEST_INSTALL'] !== 'apt' || process.getuid?.() !== 0) return;
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  // While it is waited for nothing else of this process runs, no limit of Jest's either.
  for (const args of [
    ['update', '-q'],
    ['install', '-y', '-q', '--no-install-recommends', 'pgbouncer'],
  ])
    execFileSync('apt-get', args, { env, stdio: ['ignore', 'ignore', 'inherit'], timeout: 5 * 60_000 });
}

/** Like `describe`; without a pgbouncer it is skipped with the remedy in its name, and fails where CI is set. */
export function describeWithPgbouncer(name: string, body: () => void): void {
  if (!findPgbouncer()) install();
  if (findPgbouncer()) describe(name, body);
  else if (process.env['CI']) describe(name, () => it('needs pgbouncer', () => Promise.reject(new Error(remedy))));
  else describe.skip(`${name} (skipped: ${remedy})`, body);
}
