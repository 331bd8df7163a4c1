import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { cached, cacheFolder, runs } from './find.js';

/** A mirror that does not answer, or somebody who holds a lock of apt's, must not be waited for without end. */
const withinMs = 5 * 60_000;

const execute = promisify(execFile);
const run = (file: string, args: readonly string[], options: { readonly cwd?: string } = {}) =>
  execute(file, args, { ...options, timeout: withinMs, killSignal: 'SIGKILL' });

/** With OUTBOX_TEST_INSTALL=apt the nats-server of this system's release; else, or where one is named, undefined. */
export async function installNats(): Promise<string | undefined> {
  const { OUTBOX_TEST_INSTALL: how, NATS_SERVER_BIN: named } = process.env;
  return how === 'apt' && !named ? fetchNats() : undefined;
}

/**
 * Debian's nats-server, of this system's release or of another suite such as 'trixie' (it is one static binary, and
 * runs on any), unpacked into the cache. Nothing is installed: the package would start a service, and needs root.
 */
export async function fetchNats(suite?: string): Promise<string> {
  const binary = cached(suite ?? 'system');
  if (runs(binary)) return binary;
  await mkdir(cacheFolder(), { recursive: true });
  const folder = await mkdtemp(join(cacheFolder(), 'fetching-'));
  try {
    await download(folder, suite);
    await rename(join(folder, 'unpacked'), dirname(dirname(dirname(binary)))).catch((error: unknown) => {
      // Somebody else was faster.
      if (!runs(binary)) throw error;
    });
    return binary;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Lists and archives of apt's in a folder of our own; the system's stay as they are, and signatures are checked. */
async function download(folder: string, suite: string | undefined): Promise<void> {
  for (const name of ['lists/partial', 'archives/partial']) await mkdir(join(folder, name), { recursive: true });
  const settings: Record<string, string> = {
    'Dir::State::lists': join(folder, 'lists'),
    'Dir::Cache': folder,
    'Acquire::Languages': 'none',
    // As root apt fetches by the rights of an account that may not write here.
    'APT::Sandbox::User': 'root',
  };
  if (suite) {
    settings['Dir::Etc::sourcelist'] = join(folder, 'sources.list');
    settings['Dir::Etc::sourceparts'] = '/dev/null';
    settings['Dir::Etc::preferences'] = '/dev/null';
    settings['Dir::Etc::preferencesparts'] = '/dev/null';
    settings['APT::Default-Release'] = '';
    await writeFile(join(folder, 'sources.list'), await sourceOf(suite));
  }
  const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
  // A source of somebody else's that does not answer fails it, too; the download says whether ours did.
  const update = await run('apt-get', [...options, 'update', '-q']).catch((error: Error) => error);
  try {
    await run('apt-get', [...options, 'download', '-q', 'nats-server'], { cwd: folder });
  } catch (error) {
    const reason = update instanceof Error ? update : error;
    throw new Error(`apt could not fetch nats-server from ${suite ?? "this system's sources"}`, { cause: reason });
  }
  const archive = (await readdir(folder)).find((name) => name.endsWith('.deb')) ?? '';
  await run('dpkg', ['-x', join(folder, archive), join(folder, 'unpacked')]);
}

async function sourceOf(suite: string): Promise<string> {
  const keyring = ['gpg', 'pgp']
    .map((end) => `/usr/share/keyrings/debian-archive-keyring.${end}`)
    .find((file) => existsSync(file));
  // Without it apt goes by the keys that the system trusts.
  return `deb ${keyring ? `[signed-by=${keyring}] ` : ''}${await debianMirror()} ${suite} main\n`;
}

/** Where the system itself gets its release from. */
export async function debianMirror(): Promise<string> {
  const format = '$(REPO_URI) $(RELEASE) $(COMPONENT)';
  const { stdout } = await run('apt-get', ['indextargets', '--format', format, 'Created-By: Packages']);
  const release = await readFile('/etc/os-release', 'utf8').catch(() => '');
  const codename = /^VERSION_CODENAME=(.*)$/m.exec(release)?.[1];
  const sources = stdout.split('\n').map((line) => line.split(' '));
  const own = sources.find(([, suite, component]) => suite === codename && component === 'main');
  return (/^ID=debian$/m.test(release) && own?.[0]) || 'http://deb.debian.org/debian/';
}
