import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { publishers, workers } from './plan.js';
import type { SoakReport, SoakTask } from './reports.js';
import type { Shift } from './shift.js';

const roles = ['worker', 'publisher', 'operator'] as const;
export type Role = (typeof roles)[number];

/** A time in which a process did nothing: it was stopped, or it is gone. */
export interface Absence {
  readonly pid: number;
  readonly from: number;
  to: number;
}

const stopMs = 30_000;

/** The processes of a soak, each in its place; who goes is replaced as long as the fleet is up. */
export class Fleet {
  /** Ends that nobody asked for. */
  exits = 0;
  readonly pauses: Absence[] = [];
  readonly deaths: Absence[] = [];
  private readonly places: Place[];
  private readonly goingOn: Promise<void>[] = [];
  private readonly calm = new AbortController();
  /** The roles whose processes are replaced. */
  private readonly up = new Set<Role>(roles);

  constructor(
    private readonly main: string,
    private readonly task: Omit<SoakTask, 'index'>,
    private readonly note: (line: string) => void,
    private readonly verbose: boolean,
    operators: number,
  ) {
    const place = (role: Role) => (_: unknown, index: number) => new Place(role, index, this.launch.bind(this));
    this.places = [
      ...Array.from({ length: workers }, place('worker')),
      ...Array.from({ length: publishers }, place('publisher')),
      // After those that faults happen to: a plan names places by number.
      ...Array.from({ length: operators }, place('operator')),
    ];
  }

  /** Workers first: whoever publishes before the durables are registered publishes for nobody. */
  async start(): Promise<void> {
    for (const role of roles) {
      for (const place of this.of(role)) place.fill();
      await this.ready(role);
    }
  }

  async ready(role: Role): Promise<void> {
    for (const place of this.of(role)) await place.readiness;
  }

  /** The worker's place is filled again by itself. */
  kill(worker: number): number {
    const place = this.of('worker')[worker];
    return place?.signal('SIGKILL') ?? 0;
  }

  pause(index: number, forMs: number): number {
    const place = this.places[index];
    if (!place) return 0;
    const absence: Absence = { pid: place.signal('SIGSTOP'), from: Date.now(), to: Number.POSITIVE_INFINITY };
    this.pauses.push(absence);
    const goOn = place.goesOn();
    this.goingOn.push(
      pause(forMs, undefined, { signal: this.calm.signal })
        .catch(() => {})
        .then(() => {
          absence.to = Date.now();
          goOn();
        }),
    );
    return absence.pid;
  }

  /** Everybody goes on. */
  async allGoOn(): Promise<void> {
    this.calm.abort();
    await Promise.all(this.goingOn);
  }

  /** Stops publishing; what the publishers say. */
  async published(): Promise<{ committed: string[]; uncertain: number }> {
    this.up.delete('publisher');
    const said = await Promise.all(this.of('publisher').map((place) => place.last('published')));
    return {
      committed: said.flatMap(({ committed }) => committed),
      uncertain: said.reduce((sum, { uncertain }) => sum + uncertain, 0),
    };
  }

  /** Ends the operator, who resumes all that is paused first; what it did. */
  async operated(): Promise<Shift | undefined> {
    this.up.delete('operator');
    const [operator] = this.of('operator');
    return (await operator?.last('operated'))?.shift;
  }

  async stop(): Promise<void> {
    this.up.clear();
    await Promise.all(this.places.map((place) => place.stop()));
  }

  private of(role: Role): Place[] {
    return this.places.filter((place) => place.role === role);
  }

  private launch(place: Place): ChildProcess {
    const { url, natsUrl, seed, eventsPerSecond } = this.task;
    const child = fork(this.main, [], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: {
        ...process.env,
        SOAK_PROCESS: place.role,
        SOAK_URL: url,
        SOAK_NATS: natsUrl ?? '',
        SOAK_SEED: String(seed),
        SOAK_INDEX: String(place.index),
        SOAK_RATE: String(eventsPerSecond),
      },
    });
    child.on('message', (message: SoakReport) => {
      if (message.kind === 'log' && this.verbose)
        this.note(`${place.role} ${place.index} ${child.pid}: ${message.line}`);
    });
    child.on('exit', (code, signal) => this.gone(place, child, code, signal));
    return child;
  }

  private gone(place: Place, child: ChildProcess, code: number | null, signal: string | null): void {
    this.deaths.push({ pid: child.pid ?? 0, from: Date.now(), to: Number.POSITIVE_INFINITY });
    if (!this.up.has(place.role)) return;
    if (signal !== 'SIGKILL') {
      this.exits += 1;
      this.note(`${place.role} ${place.index} (${child.pid}) ended by itself: ${signal ?? code}`);
    }
    place.fill();
  }
}

/** One process after the other. */
class Place {
  readiness: Promise<void> = Promise.resolve();
  private child: ChildProcess | undefined;

  constructor(
    readonly role: Role,
    readonly index: number,
    private readonly launch: (place: Place) => ChildProcess,
  ) {}

  fill(): void {
    const child = this.launch(this);
    this.child = child;
    this.readiness = new Promise((resolve) => {
      child.on('message', (message: SoakReport) => {
        if (message.kind === 'ready') resolve();
      });
      // Whoever waits goes on to wait for the next one.
      child.once('exit', () => setImmediate(() => void this.readiness.then(resolve)));
    });
  }

  signal(signal: NodeJS.Signals): number {
    this.child?.kill(signal);
    return this.child?.pid ?? 0;
  }

  /** For the process that is here now, even when another one has come. */
  goesOn(): () => void {
    const { child } = this;
    return () => child?.kill('SIGCONT');
  }

  /** Told to stop, it says what it has to say. */
  last<Kind extends SoakReport['kind']>(kind: Kind): Promise<Extract<SoakReport, { kind: Kind }>> {
    const { child } = this;
    return new Promise((resolve, reject) => {
      child?.on('message', (message: SoakReport) => {
        if (message.kind === kind) resolve(message as Extract<SoakReport, { kind: Kind }>);
      });
      child?.once('exit', () => reject(new Error(`${this.role} ${this.index} has ended`)));
      child?.send('stop');
    });
  }

  async stop(): Promise<void> {
    const { child } = this;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), stopMs);
    await exited;
    clearTimeout(timer);
  }
}
