import { setTimeout as pause } from 'node:timers/promises';
import { BackgroundService } from '../core/background-service.js';
import { databaseTrouble } from '../core/database-errors.js';
import { withDeadline } from '../core/deadline.js';
import type { Log } from '../core/throttled-log.js';
import type { WakeSignal } from '../core/wake-signal.js';
import { JobLockLostError, JobStoppedError, messageOf } from '../outbox.job-errors.js';
import type { JobAttempt, JobRow } from '../tables/jobs.table.js';
import type { Entry } from './entry.js';
import type { JobDefinition } from './job-definition.js';
import type { JobRun } from './job-run.js';
import { JobStarter, type StarterParts } from './job-starter.js';
import type { ListedJobs } from './listed-jobs.js';
import { dueSlot, nextStep } from './next-step.js';
import { Unfinished } from './unfinished.js';

/** How often the rows are looked at when nothing is due: for what others left, and for a schedule that changed. */
const lookEveryMs = 3_000;
/** The same while a job is paused: it goes on within two seconds of its resumption. */
const pausedLookMs = 1_000;
const registerEveryMs = 20_000;
/** How often a run that has lost its lock asks for it. */
const lockAgainMs = 300;
/** What a method that was asked to end has left to do so. */
const lastMs = 1_000;

/**
 * Runs the jobs of a process. One row a job in `job_state` decides the slot, by the database's clock; a session advisory
 * lock says that its method still runs.
 *
 *   idle ── slot due, lock got, row updated ──▶ running ── returned ──▶ idle, lock released
 *                                                  ├─ threw, tries left ──▶ failed ── due again, or the next slot ──▶ running
 *                                                  ├─ threw, none left ──▶ idle
 *                                                  └─ connection lost: signal aborted, lock taken again if it is free
 *
 * | dies | what is left | who repairs it |
 * |---|---|---|
 * | between lock and row | a lock without a run, gone with its session | the next look of anybody |
 * | the process, in the method | an unfinished slot with a free lock | another's look, when it has been free for 2.5 s: next attempt, up to `retries` |
 * | the lock's connection alone | the method runs, the lock is free | this process takes it again; a worker that lives is waited for |
 * | between the end and its record | as in the method: the slot is run once more | the same; finished tenants are not run again |
 * | the answer to the row's update | a slot that nobody runs | this process puts it back, uncharged |
 * | a stop, and the method does not end | the method runs on and keeps its lock | the end of the process; the slot is uncharged |
 * | a paused process | its session and its lock live on | nobody: that is what "exactly one" costs; health shows it |
 * | a paused process, and then its sessions | it knows of nothing; the slot is taken up | when it wakes its signal aborts: for that moment two run. Tenants are not begun again |
 */
export class SchedulerService extends BackgroundService {
  private entries: readonly Entry[] = [];
  private listed: ListedJobs | undefined;
  private registeredAt = Number.NEGATIVE_INFINITY;
  private lockingAgain = false;
  private closed = false;
  private readonly starter: JobStarter;
  private readonly unfinished: Unfinished;

  constructor(
    private readonly parts: Omit<StarterParts, 'stopping' | 'began' | 'ended'>,
    private readonly log: Log,
    wake: WakeSignal,
  ) {
    super('outbox.jobs', log, wake);
    this.starter = new JobStarter({
      ...parts,
      stopping: () => this.stopping,
      began: ({ job, slot }: JobAttempt) => this.listed?.began(job, slot),
      ended: () => this.wake.nudge(),
    });
    this.unfinished = new Unfinished(parts.locks, this.starter, log);
  }

  /** Before `start`: what to run. */
  open(definitions: readonly JobDefinition[], listed: ListedJobs): void {
    this.entries = definitions.map((definition) => ({ definition }));
    this.listed = listed;
  }

  /** Lets it look now. */
  nudge(): void {
    this.wake.nudge();
  }

  /** The connection that holds the locks is gone. */
  lost(): void {
    const lost = new Set(this.parts.locks.lost());
    for (const entry of this.entries) {
      const { definition, run } = entry;
      // When the server was away, whoever found a lock free was away with its holder, and may be back before it.
      delete entry.free;
      if (!run || !lost.has(definition.name)) continue;
      run.lockLost = true;
      this.log.warn(`job '${definition.name}' lost its lock after ${Math.round(run.took)} ms: its signal is aborted`);
      run.abort(new JobLockLostError(definition.name));
      void this.lockAgain();
    }
    this.wake.nudge();
  }

  /**
   * Waits for what runs; then asks it to end, and leaves the slots of what does not to others, who have them when it has
   * ended or the process is gone. Call `stop` before.
   */
  async drain(withinMs: number): Promise<void> {
    const running = this.entries.filter(({ run }) => run);
    const ended = Promise.all(running.map((entry) => entry.ended));
    await withDeadline('jobs', withinMs, ended).catch(() => {});
    const left = running.filter(({ run }) => run);
    for (const { definition, run } of left) run?.abort(new JobStoppedError(definition.name));
    if (left.length > 0) await withDeadline('jobs', lastMs, ended).catch(() => {});
    await Promise.all(left.map(({ run }) => run && this.leave(run, withinMs)));
    this.parts.records.close();
    this.listed?.close();
    if (left.every(({ run, definition }) => !run || definition.parallel)) return this.close();
    // Others close what they have after us, and that may take long: until the process is gone its methods run.
    this.parts.connection.unref();
    void ended.then(() => this.close());
  }

  private async leave(run: JobRun, withinMs: number): Promise<void> {
    const { name } = run.definition;
    this.log.warn(`stopping: job '${name}' did not end within ${withinMs} ms; its slot is taken up elsewhere`);
    await withDeadline('jobs', lastMs, this.parts.records.leave(run)).catch(() => {});
  }

  private close(): Promise<void> {
    this.closed = true;
    return this.parts.connection.close();
  }

  protected async turn(): Promise<number> {
    if (this.entries.length === 0) return lookEveryMs;
    const { connection, transactions } = this.parts;
    await this.register();
    const names = this.entries.map(({ definition }) => definition.name);
    const [{ rows }] = await connection.run(transactions.database.jobs.look(names));
    const found = new Map(rows.map((row) => [row.job, row]));
    let wait = lookEveryMs;
    for (const entry of this.entries)
      wait = Math.min(wait, await this.guarded(entry, found.get(entry.definition.name)));
    return Math.max(1, Math.ceil(wait));
  }

  /** One job's trouble is not the others'; the database's is everybody's. */
  private async guarded(entry: Entry, row: JobRow | undefined): Promise<number> {
    try {
      return await this.consider(entry, row);
    } catch (error) {
      if (databaseTrouble(error) === 'outage') throw error;
      const { name } = entry.definition;
      this.throttled.error(name, `job '${name}' could not be looked at and goes on: ${messageOf(error)}`);
      return lookEveryMs;
    }
  }

  private async consider(entry: Entry, row: JobRow | undefined): Promise<number> {
    // Somebody has removed it: it begins anew.
    if (!row) {
      this.registeredAt = Number.NEGATIVE_INFINITY;
      return lookEveryMs;
    }
    if (entry.run || this.stopping || this.listed?.stopped(entry.definition)) return lookEveryMs;
    // The statements that begin an attempt ask once more; what runs everywhere has none.
    if (row.paused) return pausedLookMs;
    if (entry.definition.parallel) return this.considerParallel(entry, row);
    const step = nextStep(entry.definition, row);
    if (step.kind !== 'unfinished') delete entry.free;
    switch (step.kind) {
      case 'quiet':
        return lookEveryMs;
      case 'wait':
        return step.ms;
      case 'unfinished': {
        const attempt = { ...step, job: entry.definition.name };
        if (row.worker === null || row.worker !== this.parts.identity.number)
          return this.unfinished.look(entry, attempt, this.untilNext(entry, row.now));
        await this.starter.putBack(attempt, row.worker);
        return 0;
      }
      case 'tick':
        await this.starter.tick(entry, step.slot, step.next);
        return step.next - row.now;
      case 'asked':
        await this.starter.tick(entry, step.slot, step.next, true);
        return this.untilNext(entry, row.now);
      case 'retry':
        await this.starter.takeUp(entry, { ...step, job: entry.definition.name }, true);
        return this.untilNext(entry, row.now);
    }
  }

  /** Whoever runs a job may stop after this run: the next slot is everybody's. */
  private untilNext({ definition }: Entry, now: number): number {
    return Math.min(lookEveryMs, definition.schedule.next(now) - now);
  }

  private async considerParallel(entry: Entry, { now, asked_at, schedule }: JobRow): Promise<number> {
    const { definition } = entry;
    entry.last ??= now;
    const slot = dueSlot(definition, entry.last, now);
    if (slot !== undefined) {
      entry.last = slot;
      this.starter.launch(entry, { job: definition.name, slot, attempt: 1 });
    } else if (asked_at !== null && schedule === definition.schedule.text)
      await this.starter.tickAlone(entry, asked_at);
    return definition.schedule.next(now) - now;
  }

  /**
   * A method that still runs without its lock keeps others away as soon as it can: not with the turns, which wait longer
   * and longer for a database that is away, while others may be back at once.
   */
  private async lockAgain(): Promise<void> {
    if (this.lockingAgain) return;
    this.lockingAgain = true;
    for (let bare = this.withoutLock(); bare.length > 0 && !this.closed; bare = this.withoutLock()) {
      for (const entry of bare) await this.lockFor(entry).catch(() => {});
      await pause(lockAgainMs);
    }
    this.lockingAgain = false;
  }

  private withoutLock(): Entry[] {
    return this.entries.filter(
      ({ run, definition }) => run && !definition.parallel && !this.parts.locks.holds(definition.name),
    );
  }

  private async lockFor(entry: Entry): Promise<void> {
    const { locks } = this.parts;
    // It may have ended while the answer was on its way, and then nobody would release the lock.
    if ((await locks.take(entry.definition.name)) && !entry.run) await locks.release(entry.definition.name);
  }

  /** Writes the rows of jobs that have none: for whoever asks for one before the first look. */
  async registerNow(): Promise<void> {
    this.registeredAt = Number.NEGATIVE_INFINITY;
    if (this.entries.length > 0) await this.register();
  }

  /** Also says that this schedule is still somebody's. */
  private async register(): Promise<void> {
    if (performance.now() - this.registeredAt < registerEveryMs) return;
    const { connection, transactions } = this.parts;
    const definitions = this.entries.map(({ definition }) => definition);
    const texts = definitions.map(({ schedule }) => schedule.text);
    await connection.run(
      transactions.database.jobs.register(
        definitions.map(({ name }) => name),
        texts,
      ),
    );
    this.registeredAt = performance.now();
  }
}
