import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ended } from 'throwaway-nats';
import { createDatabase, type TestDatabase } from './test-database.js';

/** One run of the demo, when it is over. */
export interface EndedDemo {
  readonly code: number | null;
  readonly lines: readonly string[];
  readonly errors: string;
  /** What it left in its temporary folder. */
  readonly left: readonly string[];
}

/** The built demo, in processes of its own, on a database of the test file's. */
export class DemoBench {
  private running: ChildProcess | undefined;

  private constructor(
    readonly database: TestDatabase,
    readonly folder: string,
  ) {}

  static async open(): Promise<DemoBench> {
    return new DemoBench(await createDatabase(), await mkdtemp(join(tmpdir(), 'outbox-demo-spec-')));
  }

  /** With a temporary folder of its own. Stopped when its output matches `until`. */
  async run(
    args: readonly string[],
    { env = {}, until }: { env?: Readonly<Record<string, string>>; until?: RegExp } = {},
  ): Promise<EndedDemo> {
    const temporary = await mkdtemp(join(this.folder, 'run-'));
    const child = spawn(process.execPath, [join(process.cwd(), 'dist/src/main.js'), ...args], {
      env: { ...process.env, DATABASE_URL: this.database.url, TMPDIR: temporary, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.running = child;
    const out: string[] = [];
    const errors: string[] = [];
    let stopped = false;
    child.stdout.on('data', (data) => {
      out.push(String(data));
      if (stopped || !until?.test(out.join(''))) return;
      stopped = true;
      child.kill('SIGINT');
    });
    child.stderr.on('data', (data) => errors.push(String(data)));
    const [code] = await once(child, 'close');
    const lines = out.join('').trimEnd().split('\n');
    return { code, lines, errors: errors.join(''), left: await readdir(temporary) };
  }

  /** A test that timed out must not leave its demo to the next one. */
  async kill(): Promise<void> {
    if (this.running) await ended(this.running, 'SIGKILL');
  }

  async close(): Promise<void> {
    // The role is the server's and would outlive the database.
    await this.database.query(`DO $$ BEGIN IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'outbox_demo') THEN
      DROP OWNED BY outbox_demo; DROP ROLE outbox_demo; END IF; END $$`);
    await this.database.drop();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** The JSON line at the end of a run with `--once`. */
export function resultOf(ended: EndedDemo): Record<string, unknown> {
  try {
    return JSON.parse(ended.lines.at(-1) ?? '');
  } catch {
    throw new Error(`the last line is no JSON; exit code ${ended.code}, stderr: ${ended.errors}`);
  }
}
