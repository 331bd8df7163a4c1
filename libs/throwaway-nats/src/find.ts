import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';

/** For programs that fetch nothing by themselves. */
export const natsMissing = 'there is no nats-server: apt-get install nats-server, or name one in NATS_SERVER_BIN';
export const natsRemedy = `${natsMissing}, or set OUTBOX_TEST_INSTALL=apt`;

/** NATS_SERVER_BIN, then the PATH, then where Debian puts it, then what `installNats` has fetched before. */
export function findNats(): string | undefined {
  const { NATS_SERVER_BIN: named, PATH: path = '' } = process.env;
  // Who names one gets that one or none: another version would be tested in its name.
  if (named) return runs(named) ? named : undefined;
  const folders = [...path.split(delimiter).filter(Boolean), '/usr/sbin'];
  return [...folders.map((folder) => join(folder, 'nats-server')), cached('system')].find(runs);
}

/** Where Debian's package puts it below a folder of the cache; one folder for each suite. */
export function cached(suite: string): string {
  return join(cacheFolder(), suite, 'usr/sbin/nats-server');
}

/** Below the workspace's node_modules, wherever in the workspace a script was started. */
export function cacheFolder(): string {
  let folder = process.cwd();
  while (!existsSync(join(folder, 'package-lock.json')) && dirname(folder) !== folder) folder = dirname(folder);
  const root = existsSync(join(folder, 'package-lock.json')) ? folder : process.cwd();
  return join(root, 'node_modules/.cache/nats-server');
}

export async function natsVersion(binary: string): Promise<string> {
  const { stdout } = await promisify(execFile)(binary, ['--version'], { timeout: 30_000 });
  return /v?(\d+\.\S+)/.exec(stdout)?.[1] ?? stdout.trim();
}

export function runs(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
