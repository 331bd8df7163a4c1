import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { processName, type Service } from '../config/app.config.js';
import type { DemoArguments } from './arguments.js';
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
  /** The names of those that were killed. */
  readonly killed = new Set<string>();
  private readonly living = new Set<ChildProcess>();
  private readonly ready = new Set<ChildProcess>();
  private readonly victims = new WeakSet<ChildProcess>();
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

  start({ workers, kill, services }: Pick<DemoArguments, 'workers' | 'kill' | 'services'>): void {
    for (let i = 0; i < workers; i++) this.add(services ? (i % 2 === 0 ? 'money' : 'rest') : undefined);
    if (kill) this.killer = setInterval(() => this.killOne(), killEveryMs);
  }

  get size(): number {
    return this.ready.size;
  }

  /** The names of those that are ready. */
  get names(): string[] {
    return [...this.ready].map(nameOf);
  }

  /** Every worker is ready, and none is about to die. */
  get complete(): boolean {
    return [...this.living].every((child) => this.ready.has(child) && !this.victims.has(child));
  }

  /** No more kills. */
  calm(): void {
    clearInterval(this.killer);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    this.calm();
    await Promise.all([...this.living].map((child) => this.end(child)));
  }

  private add(service: Service | undefined): void {
    const child = fork(this.main, [], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: {
        ...process.env,
        OUTBOX_DEMO_PROCESS: 'worker',
        DATABASE_URL: this.stage.appUrl,
        BLOB_FOLDER: this.stage.blobFolder,
        OUTBOX_DEMO_SERVICE: service ?? '',
        NATS_URL: this.stage.broker?.url ?? '',
      },
    });
    this.living.add(child);
    child.on('message', (report: WorkerReport) => {
      if (report.kind === 'note') this.note(report.line);
      if (report.kind === 'ready') this.becameReady(child);
    });
    child.on('exit', () => this.gone(child, service));
  }

  private becameReady(child: ChildProcess): void {
    if (this.living.has(child)) this.ready.add(child);
    this.firstReady();
  }

  private gone(child: ChildProcess, service: Service | undefined): void {
    this.living.delete(child);
    this.ready.delete(child);
    if (this.stopping) return;
    if (!this.victims.has(child) && ++this.crashes >= mostCrashes)
      this.fail(new DemoError(`${mostCrashes} workers ended by themselves`));
    else this.add(service);
  }

  /**
   * Any of them, also one that is still starting; but of several only when two are ready: a slow machine would get
   * nowhere if the last one were killed, and if only those that start were, the last one would never be.
   */
  private killOne(): void {
    const children = [...this.living].filter((child) => !this.victims.has(child));
    const victim = children[Math.floor(Math.random() * children.length)];
    const ready = children.filter((child) => this.ready.has(child)).length;
    if (!victim || ready < Math.min(this.living.size, 2)) return;
    this.victims.add(victim);
    if (!victim.kill('SIGKILL')) return;
    this.kills += 1;
    this.killed.add(nameOf(victim));
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

function nameOf({ pid = 0 }: ChildProcess): string {
  return processName(pid);
}
