import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ended } from 'throwaway-nats';
import { eventually } from './eventually.js';

/** What a worker process tells its test. */
export interface WorkerReport {
  readonly kind: 'ready' | 'started' | 'finished' | 'log';
  readonly eventId?: string;
  /** Of a log line; of a job, its name. */
  readonly text?: string;
}

/** A process that starts beside others on a busy machine. */
const startMs = 60_000;

/** A whole worker process (see worker-main.ts and job-main.ts), to be killed, paused and replaced. */
export class WorkerProcess {
  readonly reports: WorkerReport[] = [];
  private readonly noise: string[] = [];

  private constructor(readonly child: ChildProcess) {
    child.on('message', (report: WorkerReport) => this.reports.push(report));
    child.stdout?.on('data', (data) => this.noise.push(String(data)));
    child.stderr?.on('data', (data) => this.noise.push(String(data)));
  }

  static async start(url: string, env: Readonly<Record<string, string>> = {}): Promise<WorkerProcess> {
    const worker = WorkerProcess.launch(url, env);
    await worker.ready();
    return worker;
  }

  /** The process, which may not be up for a while. */
  static launch(url: string, env: Readonly<Record<string, string>> = {}, main = 'worker-main'): WorkerProcess {
    const child = fork(join(process.cwd(), `dist/test/support/${main}.js`), [], {
      env: { ...process.env, DATABASE_URL: url, ...env },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    return new WorkerProcess(child);
  }

  /** Resolves when its app has started. */
  async ready(): Promise<void> {
    const upOrGone = () => !this.running || this.said({ kind: 'ready' });
    await eventually('the worker process is ready', upOrGone, startMs);
    if (!this.running) throw new Error(`it exited with ${this.child.exitCode}: ${this.noise.join('')}`);
  }

  /** Whether it has reported this, or logged a line that matches. */
  said({ kind, text }: { kind: WorkerReport['kind']; text?: RegExp }): boolean {
    return this.reports.some((report) => report.kind === kind && (!text || text.test(report.text ?? '')));
  }

  /** Resolves when a handler in the process has begun an event. */
  started(eventId?: string): Promise<unknown> {
    return eventually(`a handler starts ${eventId ?? 'an event'}`, () =>
      this.reports.find((r) => r.kind === 'started' && (!eventId || r.eventId === eventId)),
    );
  }

  /** How many handlers have begun. */
  get begun(): number {
    return this.reports.filter(({ kind }) => kind === 'started').length;
  }

  /** Lets the handlers go on that wait for it (`hold`). */
  go(): void {
    this.child.send('go');
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  get running(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** Resolves when the process is gone, whatever ended it. */
  async gone(): Promise<void> {
    if (this.running) await once(this.child, 'exit');
  }

  /** Sends a signal; resolves at once. */
  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** SIGKILL, and wait until the process is gone. */
  async kill(): Promise<void> {
    await ended(this.child, 'SIGKILL');
  }

  /** SIGTERM, and wait for the exit code. */
  async stop(): Promise<number | null> {
    await ended(this.child, 'SIGTERM', startMs);
    return this.child.exitCode;
  }
}
