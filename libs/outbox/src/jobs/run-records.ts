import { setTimeout as pause } from 'node:timers/promises';
import { defaultLadderMs, jittered, ladderStep, loopBackoff } from '../core/backoff.js';
import { databaseTrouble } from '../core/database-errors.js';
import { errorText } from '../core/error-text.js';
import type { Log } from '../core/throttled-log.js';
import { ThrottledLog } from '../core/throttled-log.js';
import { JobStoppedError, messageOf } from '../outbox.job-errors.js';
import type { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { JobOutcome } from '../tables/jobs.table.js';
import { type Bound, interval } from '../tables/wire/statement.js';
import type { JobRun } from './job-run.js';

/** What an attempt came to. */
interface Verdict {
  readonly outcome: JobOutcome;
  /** `undefined`: the slot is over. `null`: whoever finds it takes it up. */
  readonly againMs?: number | null;
  readonly charged: boolean;
}

/** A parallel job writes its state this often at most, unless its outcome changes: there are as many of it as instances. */
const noteEveryMs = 5_000;
/** Characters in a line of the log: room for the tenants that failed. */
const toldAtMost = 8_000;

/** Records what came of runs, and says what is worth saying. */
export class RunRecords {
  private readonly throttled: ThrottledLog;
  /** Of parallel jobs: what was written last, and when. */
  private readonly noted = new Map<string, { readonly outcome: JobOutcome; readonly at: number }>();
  private closed = false;

  constructor(
    private readonly database: Database,
    private readonly connection: InfrastructureConnection,
    private readonly log: Log,
  ) {
    this.throttled = new ThrottledLog(log);
  }

  /** From here nobody waits for the database any more. */
  close(): void {
    this.closed = true;
  }

  /** Again and again until the database has it: an attempt whose end is not known would be run once more. */
  async end(run: JobRun, errors: readonly unknown[], stopping: boolean): Promise<void> {
    const { attempt, definition } = run;
    const verdict = judge(run, errors.length > 0, stopping);
    const text = errors.length > 0 ? errorText(errors[0]) : null;
    const { outcome, againMs, charged } = verdict;
    const statement =
      againMs === undefined
        ? this.database.jobs.finish(attempt, outcome, text)
        : this.database.jobs.again(attempt, outcome, text, againMs === null ? null : interval(againMs), charged);
    const recorded = await this.insist(definition.name, statement);
    if (recorded === undefined) return;
    if (recorded.rows === 0)
      this.log.warn(
        `job '${definition.name}' ended at slot ${instant(attempt.slot)}, ${recorded.unsure ? 'which is recorded already, or is' : 'which is'} somebody else's by now`,
      );
    else if (errors.length > 0) this.say(run, verdict, errors[0]);
    else if (run.lockLost)
      this.log.warn(
        `job '${definition.name}' ended well at slot ${instant(attempt.slot)}, but had lost its lock on the way`,
      );
  }

  /**
   * The process has no more time for a method that runs on. Unrecorded, the slot would be taken up as if its process had
   * died: charged, and with no retries given up.
   */
  async leave(run: JobRun): Promise<void> {
    const { attempt, definition } = run;
    run.left = true;
    const why = errorText(new JobStoppedError(definition.name));
    await this.connection.run(this.database.jobs.again(attempt, 'interrupted', why, null, false));
  }

  /** The last state of a parallel job. */
  async note(run: JobRun, errors: readonly unknown[]): Promise<void> {
    const { name } = run.definition;
    const outcome = errors.length > 0 ? 'failed' : 'done';
    if (errors.length > 0)
      this.throttled.error(
        name,
        `job '${name}' failed here at slot ${instant(run.attempt.slot)}: ${messageOf(errors[0])}`,
      );
    const last = this.noted.get(name);
    if (last?.outcome === outcome && performance.now() - last.at < noteEveryMs) return;
    this.noted.set(name, { outcome, at: performance.now() });
    const text = errors.length > 0 ? errorText(errors[0]) : null;
    const state = this.database.jobs.note(name, run.attempt.slot, outcome, text, interval(run.took));
    await this.connection
      .run(state)
      .catch((error) =>
        this.throttled.warn('note', `the state of job '${name}' could not be written: ${messageOf(error)}`),
      );
  }

  /**
   * How many rows were changed, and whether they may have been so before, by a try whose answer was lost; `undefined`
   * when there was no time left to hear it.
   */
  private async insist(job: string, statement: Bound): Promise<{ rows: number; unsure: boolean } | undefined> {
    for (let tries = 1; ; tries++) {
      try {
        return { rows: (await this.connection.run(statement))[0].rowCount, unsure: tries > 1 };
      } catch (error) {
        if (this.closed) return undefined;
        const waits = databaseTrouble(error) === 'other' ? 'failed' : 'waits';
        this.throttled.warn('end', `recording the end of job '${job}' ${waits}: ${messageOf(error)}`);
        await pause(loopBackoff(tries));
      }
    }
  }

  private say({ definition, attempt, lockLost }: JobRun, { againMs, charged }: Verdict, error: unknown): void {
    const { name, retries } = definition;
    const then =
      againMs === undefined ? 'the slot is over' : againMs === null ? 'again soon' : `again in ${againMs} ms`;
    const which = charged
      ? `attempt ${attempt.attempt} of ${retries + 1}, ${then}`
      : 'the process stops, again elsewhere';
    this.throttled.error(
      name,
      `job '${name}' failed at slot ${instant(attempt.slot)}${lockLost ? ' after it had lost its lock' : ''} (${which}): ${messageOf(error, toldAtMost)}`,
    );
  }
}

function judge(run: JobRun, failed: boolean, stopping: boolean): Verdict {
  const { attempt, definition, lockLost } = run;
  if (!failed) return { outcome: lockLost ? 'lock lost' : 'done', charged: true };
  // Others' destroy hooks run beside us: from the stop on nothing is charged.
  if (stopping) return { outcome: 'interrupted', againMs: null, charged: false };
  const outcome = lockLost ? 'lock lost' : 'failed';
  if (attempt.attempt > definition.retries) return { outcome, charged: true };
  return {
    outcome,
    againMs: lockLost ? null : jittered(ladderStep(defaultLadderMs, attempt.attempt)),
    charged: true,
  };
}

/** A moment as people write it. */
export function instant(moment: number): string {
  return new Date(moment).toISOString();
}
