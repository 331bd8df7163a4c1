import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ended } from './ended.js';
import { findNats, natsRemedy } from './find.js';
import { frozen } from './frozen.js';
import { Guard } from './guard.js';
import { freePort } from './port.js';

export interface ThrowawayNats {
  readonly url: string;
  /** Such as '2.10.27'. */
  readonly version: string;
  /** The folder of JetStream's data. */
  readonly storage: string;
  /** Undefined while it does not run. */
  readonly pid: number | undefined;
  /** Freezes the server (SIGSTOP); from when it resolves connections stay open and nothing is answered. */
  pause(): Promise<void>;
  unpause(): void;
  /** Ends it in order, and keeps its data. */
  stopServer(): Promise<void>;
  /** Ends it at once (SIGKILL), and keeps its data. */
  kill(): Promise<void>;
  /** Starts it again, on the same port, with the same data. */
  start(): Promise<void>;
  /** Deletes JetStream's data while the server does not run. */
  wipe(): Promise<void>;
  /** Ends it and removes everything. */
  stop(): Promise<void>;
}

export interface ThrowawayNatsOptions {
  /** Lines of the configuration file, such as `max_payload: 64KB` or a block `authorization { … }`. */
  readonly config?: string;
  /** Lines inside its block `jetstream`, such as `domain: hub` or `max_file_store: 10MB`; false for none at all. */
  readonly jetstream?: string | false;
  /** The server's binary, in place of the one `findNats` finds. */
  readonly binary?: string;
  readonly readyWithinMs?: number;
}

/**
 * Starts a real nats-server with JetStream on a free port, with data in a temporary folder. It ends when this process
 * does, and not by the terminal's Ctrl-C, which would take it from under whoever uses it.
 */
export async function startNats(options: ThrowawayNatsOptions = {}): Promise<ThrowawayNats> {
  const binary = options.binary ?? findNats();
  if (!binary) throw new Error(natsRemedy);
  const server = await Server.prepare(binary, options);
  try {
    await server.start();
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

class Server implements ThrowawayNats {
  version = '';
  private child: ChildProcess | undefined;
  private readonly noise: string[] = [];

  private constructor(
    private readonly binary: string,
    private readonly folder: string,
    private readonly port: number,
    private readonly guard: Guard,
    private readonly readyWithinMs: number,
  ) {}

  static async prepare(binary: string, options: ThrowawayNatsOptions): Promise<Server> {
    const folder = await mkdtemp(join(tmpdir(), 'outbox-nats-'));
    const guard = await Guard.start(folder, join(folder, 'pid'));
    const server = new Server(binary, folder, await freePort(), guard, options.readyWithinMs ?? 20_000);
    await writeFile(server.configFile, server.configuration(options));
    await server.wipe();
    return server;
  }

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  get storage(): string {
    return join(this.folder, 'data');
  }

  get pid(): number | undefined {
    return this.child?.pid;
  }

  async pause(): Promise<void> {
    const { pid } = this.running();
    this.running().kill('SIGSTOP');
    if (pid) await frozen(pid);
  }

  unpause(): void {
    this.running().kill('SIGCONT');
  }

  async stopServer(): Promise<void> {
    const child = this.running();
    // A frozen process takes the other signal only when it goes on.
    child.kill('SIGCONT');
    await ended(child, 'SIGTERM');
  }

  async kill(): Promise<void> {
    await ended(this.running(), 'SIGKILL');
  }

  async start(): Promise<void> {
    if (this.child) throw new Error('the throw-away nats-server runs already');
    const child = spawn(this.binary, ['-c', this.configFile], { detached: true, stdio: ['ignore', 'ignore', 'pipe'] });
    await once(child, 'spawn');
    this.child = child;
    const pidFile = join(this.folder, 'pid');
    child.once('exit', () => {
      this.child = undefined;
      // Another process may get the number.
      rmSync(pidFile, { force: true });
    });
    writeFileSync(pidFile, String(child.pid));
    try {
      await this.ready(child);
    } catch (error) {
      if (this.child) await this.kill();
      throw error;
    }
  }

  async wipe(): Promise<void> {
    if (this.child) throw new Error('the throw-away nats-server runs; stop it before its data is deleted');
    await rm(this.storage, { recursive: true, force: true });
    await mkdir(this.storage);
  }

  async stop(): Promise<void> {
    if (this.child) await this.kill();
    this.guard.dismiss();
    await rm(this.folder, { recursive: true, force: true });
  }

  private get configFile(): string {
    return join(this.folder, 'nats.conf');
  }

  private configuration({ config = '', jetstream = '' }: ThrowawayNatsOptions): string {
    const lines = [`listen: 127.0.0.1:${this.port}`];
    if (jetstream !== false) lines.push(`jetstream {\nstore_dir: ${JSON.stringify(this.storage)}\n${jetstream}\n}`);
    return `${lines.join('\n')}\n${config}\n`;
  }

  private running(): ChildProcess {
    if (!this.child) throw new Error('the throw-away nats-server does not run');
    return this.child;
  }

  /** It says so when JetStream has recovered its streams and the port takes connections. */
  private ready(child: ChildProcess): Promise<void> {
    this.noise.length = 0;
    return new Promise((resolve, reject) => {
      const fail = (what: string): void => {
        clearTimeout(late);
        reject(new Error(`the throw-away nats-server ${what}; its last words:\n${this.noise.join('\n')}`));
      };
      const late = setTimeout(() => fail(`was not ready within ${this.readyWithinMs} ms`), this.readyWithinMs);
      // 'close' rather than 'exit': only then is everything read that it said.
      child.once('close', (code, signal) => fail(`did not start: it ended with ${code ?? signal}`));
      if (!child.stderr) return fail('has no output to read');
      createInterface({ input: child.stderr }).on('line', (line) => {
        keep(this.noise, line);
        this.version = /\bVersion:\s+(\S+)/.exec(line)?.[1] ?? this.version;
        if (!line.includes('Server is ready')) return;
        clearTimeout(late);
        resolve();
      });
    });
  }
}

function keep(noise: string[], line: string): void {
  noise.push(line);
  if (noise.length > 40) noise.shift();
}
