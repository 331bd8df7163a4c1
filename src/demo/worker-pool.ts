import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { DemoError } from './demo-error.js';
import type { Note } from './demo-logger.js';
import type { Stage } from './stage.js';
import type { WorkerReport } from './worker-process.js';

const killEveryMs = 1_000;
/** A worker that is asked to stop drains for at most 10 s. */
const stopMs = 20_000;
/** Workers that end by themselves before this is given up. */
const mostCrashes = 5;

/** Whole worker processes on one database: started, killed at random when asked to, replaced, and stopped at the end. */
export class WorkerPool {
  kills = 0;
  private readonly living = new Set<ChildProcess>();
  private readonly ready = new Set<ChildProcess>();
  private readonly killed = new WeakSet<ChildProcess>();
  private crashes = 0;
  private stopping = false;
  private killer: NodeJS.Timeout | undefined;
  private firstReady: () => void = () => {};
  private fail: (error: Error) => void = () => {};
  /** The first worker is ready: every durable is registered. */
  readonly started = new Promise<void>((resolve) => {
    this.firstReady = resolve;
  });
  /** Rejects when workers do not stay up; never resolves. */
  readonly failed = new Promise<never>((_, reject) => {
    this.fail = reject;
  });

  constructor(
    private readonly main: string,
    private readonly stage: Stage,
    private readonly note: Note,
  ) {
    this.failed.catch(() => {});
  }

  start(count: number, kill: boolean): void {
    for (let i = 0; i < count; i++) this.add();
    if (kill) this.killer = setInterval(() => this.killOne(), killEveryMs);
  }

  get size(): number {
    return this.ready.size;
  }

  async stop(): Promise<void> {
    this.stopping = true;
    clearInterval(this.killer);
    await Promise.all([...this.living].map((child) => this.end(child)));
  }

  private add(): void {
    const child = fork(this.main, [], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: {
        ...process.env,
        OUTBOX_DEMO_PROCESS: 'worker',
        DATABASE_URL: this.stage.appUrl,
        BLOB_FOLDER: this.stage.blobFolder,
      },
    });
    this.living.add(child);
    child.on('message', (report: WorkerReport) => {
      if (report.kind === 'note') this.note(report.line);
      if (report.kind === 'ready') this.becameReady(child);
    });
    child.on('exit', () => this.gone(child));
  }

  private becameReady(child: ChildProcess): void {
    if (this.living.has(child)) this.ready.add(child);
    this.firstReady();
  }

  private gone(child: ChildProcess): void {
    this.living.delete(child);
    this.ready.delete(child);
    if (this.stopping) return;
    if (!this.killed.has(child) && ++this.crashes >= mostCrashes)
      this.fail(new DemoError(`${mostCrashes} workers ended by themselves`));
    else this.add();
  }

  /** Any of them, also one that is still starting; but of several never the only one that is ready: a slow machine would get nowhere. */
  private killOne(): void {
    const children = [...this.living].filter((child) => !this.killed.has(child));
    const victim = children[Math.floor(Math.random() * children.length)];
    const spared = this.living.size > 1 && victim !== undefined && this.ready.has(victim) ? 1 : 0;
    if (!victim || this.ready.size <= spared) return;
    this.killed.add(victim);
    if (victim.kill('SIGKILL')) this.kills += 1;
  }

  private async end(child: ChildProcess): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    // One that is still starting does not listen yet; it holds nothing that a kill could harm.
    child.kill(this.ready.has(child) ? 'SIGTERM' : 'SIGKILL');
    const timer = setTimeout(() => child.kill('SIGKILL'), stopMs);
    await exited;
    clearTimeout(timer);
  }
}
