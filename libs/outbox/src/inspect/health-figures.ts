import type { WorkerIdentity } from '../core/worker-identity.js';
import type { HealthPart, HealthRows, HolderRow, JobStateRow, WaitingRow } from '../tables/health.table.js';
import { countedTo } from '../tables/health.table.js';
import type {
  DeliveryFigures,
  HealthFigures,
  JobFigures,
  RunningJob,
  VacuumHolder,
  WorkerFigures,
} from './health-report.js';
import { pauseOf } from './pauses.js';

/** The rows of the parts that were answered, and the worker number that the lock was asked for. */
export type Answers = { readonly [P in HealthPart]?: readonly HealthRows[P][] } & {
  readonly asked?: number | undefined;
};

/** The rows as figures. */
export function figuresOf(
  answers: Answers,
  identity: WorkerIdentity | undefined,
  listening: boolean | null,
): HealthFigures {
  const relay = answers.relay?.[0];
  const letters = answers.deadLetters?.[0];
  return {
    relay: relay ? { waiting: relay.waiting, lagMs: relay.lag_ms } : null,
    deliveries: answers.deliveries ? deliveries(answers.deliveries) : null,
    deadLetters: letters ? { open: letters.open, oldest: date(letters.oldest) } : null,
    jobs: answers.jobs ? jobs(answers.jobs) : null,
    worker: identity ? { ...worker(answers, identity), listening } : null,
    vacuum: answers.vacuum ? { holder: holder(answers.vacuum[0]) } : null,
    pauses: answers.pauses?.map(pauseOf) ?? null,
    overruns:
      answers.overruns?.map(({ durable, handlers, longest_ms, apps }) => ({
        ...{ durable, handlers, apps },
        longestMs: longest_ms,
      })) ?? null,
  };
}

function deliveries(rows: readonly WaitingRow[]): DeliveryFigures {
  const durables = rows.map(({ durable, waiting, oldest_ms, unseen_ms, paused }) => ({
    durable,
    waiting,
    oldestMs: oldest_ms,
    unseenMs: unseen_ms,
    paused,
  }));
  const waiting = durables.reduce((sum, row) => sum + row.waiting, 0);
  return { waiting: Math.min(waiting, countedTo), oldestMs: durables[0]?.oldestMs ?? null, durables };
}

function jobs(rows: readonly JobStateRow[]): JobFigures {
  return {
    running: rows.filter((row) => row.running).map(running),
    lostLocks: rows.flatMap(({ job, lost }) => (lost === null ? [] : [{ job, at: new Date(lost) }])),
    failed: rows.flatMap(({ job, failed, error }) =>
      failed === null ? [] : [{ job, at: new Date(failed), error: error ?? '' }],
    ),
  };
}

function running(row: JobStateRow): RunningJob {
  return {
    job: row.job,
    slot: new Date(row.slot ?? 0),
    attempt: row.attempt,
    forMs: row.for_ms ?? 0,
    worker: row.worker,
    app: row.app,
    pastTimeoutMs: past(row.past_deadline_ms),
    pastNextSlotMs: past(row.past_next_slot_ms),
  };
}

/** Its number may have been lost, or another taken, while the server was asked for the one before. */
function worker({ lock, asked }: Answers, { number }: WorkerIdentity): Omit<WorkerFigures, 'listening'> {
  if (number === undefined) return { number: null, holdsLock: false };
  return { number, holdsLock: number === asked ? (lock?.[0]?.held ?? null) : null };
}

function holder(row: HolderRow | undefined): VacuumHolder | null {
  if (!row) return null;
  const { kind, pid, application, role, state, name, transactions, for_ms } = row;
  return { kind, pid, applicationName: application, user: role, state, name, transactions, forMs: for_ms };
}

function past(milliseconds: number | null): number | null {
  return milliseconds !== null && milliseconds > 0 ? milliseconds : null;
}

function date(milliseconds: number | null): Date | null {
  return milliseconds === null ? null : new Date(milliseconds);
}
