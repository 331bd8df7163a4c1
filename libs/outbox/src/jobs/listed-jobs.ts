import { CronJob } from 'cron';
import type { JobDefinition } from './job-definition.js';

/** As much of `@nestjs/schedule`'s `SchedulerRegistry` as jobs are listed in. */
export interface Registry {
  doesExist(type: 'cron' | 'interval', name: string): boolean;
  addCronJob(name: string, job: CronJob): void;
  addInterval<T>(name: string, handle: T): void;
}

/** Node's timers hold 31 bits of milliseconds; one that is longer fires at once, again and again. */
const longestTimerMs = 2 ** 31 - 1;

/**
 * The jobs of this process in Nest's registry, under their names, for whatever lists and stops jobs there. What is stopped
 * or deleted there is not run by this process; other instances do not hear of it.
 */
export class ListedJobs {
  private readonly crons = new Map<string, ListedCronJob>();
  private readonly timers = new Map<string, NodeJS.Timeout>();

  constructor(
    private readonly registry: Registry,
    private readonly wake: () => void,
  ) {}

  /** Names that something else in the registry has already. */
  taken(definitions: readonly JobDefinition[]): string[] {
    return definitions
      .map(({ name }) => name)
      .filter((name) => ['cron', 'interval'].some((type) => this.registry.doesExist(type as 'cron', name)));
  }

  add(definitions: readonly JobDefinition[]): void {
    for (const { name, cron, everyMs } of definitions) {
      if (cron) this.addCron(name, new ListedCronJob(name, cron.expression, cron.timeZone, this.wake));
      else this.addInterval(name, everyMs ?? longestTimerMs);
    }
  }

  /** Whether it was stopped or deleted in the registry. */
  stopped({ name, cron }: JobDefinition): boolean {
    if (!this.registry.doesExist(cron ? 'cron' : 'interval', name)) return true;
    return this.crons.get(name)?.isActive === false;
  }

  /** A run began here. */
  began(name: string, slot: number): void {
    const job = this.crons.get(name);
    if (job) job.lastExecution = new Date(slot);
  }

  /** Leaves no timer behind. */
  close(): void {
    for (const timer of this.timers.values()) clearInterval(timer);
  }

  private addCron(name: string, job: ListedCronJob): void {
    this.crons.set(name, job);
    this.registry.addCronJob(name, job);
  }

  private addInterval(name: string, everyMs: number): void {
    // A real timer, because a registry's users clear it. It does nothing: the scheduler wakes by itself.
    const timer = setInterval(() => {}, Math.min(everyMs, longestTimerMs));
    timer.unref();
    this.timers.set(name, timer);
    this.registry.addInterval(name, timer);
  }
}

/**
 * A `CronJob` without timers of its own: the scheduler decides, by the database's clock. `fireOnTick` lets it look. Its
 * `nextDate()` is the `cron` package's own word, which is not ours in a night in which the clock is changed.
 */
class ListedCronJob extends CronJob {
  private active = true;

  constructor(
    name: string,
    expression: string,
    timeZone: string,
    private readonly wake: () => void,
  ) {
    super(expression, wake, null, false, timeZone, undefined, false, null, true, false, undefined, name);
  }

  override get isActive(): boolean {
    return this.active;
  }

  override start(): void {
    this.active = true;
    this.wake();
  }

  override stop(): undefined {
    this.active = false;
  }
}
