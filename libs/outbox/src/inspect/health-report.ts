import type { Pause } from './pauses.js';

export type HealthStatus = 'green' | 'yellow' | 'red';

export type HealthCode =
  | 'database'
  | 'unreadable'
  | 'worker'
  | 'relay'
  | 'deliveries'
  | 'handler-hung'
  | 'paused'
  | 'unserved'
  | 'listener'
  | 'broker'
  | 'dead-letters'
  | 'job-hung'
  | 'job-late'
  | 'job-lock-lost'
  | 'job-failed'
  | 'vacuum';

/** One thing that is not as it should be; the message names it and the remedy. */
export interface HealthProblem {
  readonly status: 'yellow' | 'red';
  readonly code: HealthCode;
  readonly message: string;
}

/**
 * What the database says. A part is null when there is no figure: the role may not read it (a publisher), the process
 * has none of it (a publisher is no worker), or it could not be had, which is then a problem. Counts end at 10,001.
 */
export interface HealthFigures {
  readonly relay: RelayFigures | null;
  readonly deliveries: DeliveryFigures | null;
  readonly deadLetters: DeadLetterFigures | null;
  readonly jobs: JobFigures | null;
  readonly worker: WorkerFigures | null;
  readonly vacuum: { readonly holder: VacuumHolder | null } | null;
  /** What is paused, the oldest pause first. */
  readonly pauses: readonly Pause[] | null;
  /** Handlers that run on though their time was up, by durable. */
  readonly overruns: readonly OverrunFigures[] | null;
}

/** Each of them keeps its slot until it ends. */
export interface OverrunFigures {
  readonly durable: string;
  readonly handlers: number;
  readonly longestMs: number;
  /** The processes, separated by commas. */
  readonly apps: string;
}

export interface HealthReport extends HealthFigures {
  /** The worst of `problems`; green when there is none. */
  readonly status: HealthStatus;
  /** Red ones first. */
  readonly problems: readonly HealthProblem[];
}

/** Events that are due and not forwarded yet. */
export interface RelayFigures {
  readonly waiting: number;
  /** How long the oldest has been due; null when nothing is due. */
  readonly lagMs: number | null;
}

/** Deliveries that are due and taken by no worker. What a worker holds is not counted. */
export interface DeliveryFigures {
  readonly waiting: number;
  /** How long the oldest has been due; null when nothing is due. */
  readonly oldestMs: number | null;
  /** Those for which something waits, the longest wait first. */
  readonly durables: readonly WaitingDurable[];
}

export interface WaitingDurable {
  readonly durable: string;
  readonly waiting: number;
  readonly oldestMs: number;
  /** Since a worker that handles it was last seen, to about a minute; null when none ever was. */
  readonly unseenMs: number | null;
  /** The durable is paused; what is parked already is not counted here. */
  readonly paused: boolean;
}

/** Letters that are neither retried nor resolved. */
export interface DeadLetterFigures {
  readonly open: number;
  readonly oldest: Date | null;
}

/** Periodic jobs, of all processes. */
export interface JobFigures {
  /** The longest run first. A run whose process died counts until it is taken up again. */
  readonly running: readonly RunningJob[];
  /** Jobs whose last run lost its lock within the last hour. */
  readonly lostLocks: readonly { readonly job: string; readonly at: Date }[];
  /** Jobs whose last slot is over and did not end well. */
  readonly failed: readonly { readonly job: string; readonly at: Date; readonly error: string }[];
}

export interface RunningJob {
  readonly job: string;
  readonly slot: Date;
  readonly attempt: number;
  readonly forMs: number;
  readonly worker: number | null;
  /** Host and process id; null when that worker is not registered (any more). */
  readonly app: string | null;
  /** How long past its timeout; null when it has none, or has not reached it. */
  readonly pastTimeoutMs: number | null;
  /** How long past the slot after its own; null before that. */
  readonly pastNextSlotMs: number | null;
}

/** This process as a worker. */
export interface WorkerFigures {
  /** null while it holds none: it then takes nothing. */
  readonly number: number | null;
  /** Whether the server agrees that the lock of this number is held; null when it could not be asked. */
  readonly holdsLock: boolean | null;
  /** Whether other processes can wake it; null where nobody else works (memory()). */
  readonly listening: boolean | null;
}

/** The oldest transaction that keeps vacuum from removing dead rows. */
export interface VacuumHolder {
  /** `standby`: the sender to one without a slot, which passes on what a query there needs. */
  readonly kind: 'session' | 'standby' | 'prepared transaction' | 'replication slot';
  readonly pid: number | null;
  readonly applicationName: string | null;
  /** The database role behind it. */
  readonly user: string | null;
  /** As in `pg_stat_activity`; null when this role may not see it. */
  readonly state: string | null;
  /** The prepared transaction's identifier, or the slot's name. */
  readonly name: string | null;
  /** How many transactions began since. */
  readonly transactions: number;
  /** For how long; null when this role may not see it, and for slots, which do not know. */
  readonly forMs: number | null;
}

export const noFigures: HealthFigures = {
  relay: null,
  deliveries: null,
  deadLetters: null,
  jobs: null,
  worker: null,
  vacuum: null,
  pauses: null,
  overruns: null,
};

const order: readonly HealthStatus[] = ['red', 'yellow', 'green'];

/** A report of these figures and problems. */
export function healthReport(figures: HealthFigures, problems: readonly HealthProblem[]): HealthReport {
  const sorted = problems.toSorted((a, b) => order.indexOf(a.status) - order.indexOf(b.status));
  return { status: sorted[0]?.status ?? 'green', problems: sorted, ...figures };
}
