import type {
  DeadLetterFigures,
  DeliveryFigures,
  HealthCode,
  HealthFigures,
  HealthProblem,
  JobFigures,
  OverrunFigures,
  RelayFigures,
  RunningJob,
  VacuumHolder,
  WorkerFigures,
} from './health-report.js';
import type { Pause } from './pauses.js';
import { argument, countOf, span } from './wording.js';

const seconds = 1_000;
const minutes = 60 * seconds;
const hours = 60 * minutes;

interface Limits {
  readonly yellow: number;
  readonly red: number;
}

/**
 * Beyond the poll, which is how long an event waits at most when nobody wakes the relay. A pass takes milliseconds and
 * a worker's restart some seconds: half a minute is no accident, and five minutes mean that nobody relays.
 */
const relayLag: Limits = { yellow: 30 * seconds, red: 5 * minutes };
/** Beyond the poll as well. Longer than the relay's, because a burst may wait for slow handlers and be in order. */
const deliveryWait: Limits = { yellow: 5 * minutes, red: 1 * hours };
/** A handler that ends soon after its signal is in order; one that does not will hardly end by itself. */
const overrun: Limits = { yellow: 30 * seconds, red: 5 * minutes };
/** Workers say once a minute what they handle; a deploy may take some. */
const unserved = 5 * minutes;
/** A job of every second that takes two is slow and not hung: past its next slot counts from here on. */
const lateFrom = 5 * seconds;
/** The hot tables double their dead rows in minutes under load; after an hour every poll of everybody pays for it. */
const vacuumHeld: Limits = { yellow: 5 * minutes, red: 1 * hours };
/** The same where no time is known: what a busy outbox, at a thousand transactions a second, makes of it. */
const vacuumHeldTransactions: Limits = { yellow: 300_000, red: 3_600_000 };

/** What is wrong with these figures. Pure: all times are the database's, and ages already. */
export function judge(figures: HealthFigures, pollMs: number): HealthProblem[] {
  return [
    ...of(figures.worker, worker),
    ...of(figures.relay, (given) => relay(given, pollMs)),
    ...of(figures.deliveries, (given) => deliveries(given, pollMs)),
    ...of(figures.deadLetters, deadLetters),
    ...of(figures.jobs, jobs),
    ...of(figures.vacuum?.holder, vacuum),
    ...of(figures.pauses, pauses),
    ...of(figures.overruns, overruns),
  ];
}

/** Who is healthy by default: what has no figures has no problems. */
function of<T>(given: T | null | undefined, look: (given: T) => HealthProblem[]): HealthProblem[] {
  return given === null || given === undefined ? [] : look(given);
}

function beyond(value: number, limits: Limits): 'yellow' | 'red' | undefined {
  if (value > limits.red) return 'red';
  return value > limits.yellow ? 'yellow' : undefined;
}

function problem(status: 'yellow' | 'red' | undefined, code: HealthCode, message: () => string): HealthProblem[] {
  return status === undefined ? [] : [{ status, code, message: message() }];
}

function worker({ number, holdsLock, listening }: WorkerFigures): HealthProblem[] {
  const deaf = problem(
    listening === false ? 'yellow' : undefined,
    'listener',
    () =>
      'this process does not hear of work from others (LISTEN): it finds that at its poll, and nothing else changes. It connects again by itself; if not, its log says why (outbox.listener), and infrastructure.url must not lead through a transaction pooler',
  );
  if (number !== null && holdsLock !== false) return deaf;
  const lost = problem('red', 'worker', () =>
    number === null
      ? 'this process holds no worker number and takes nothing: it is starting or stopping, or the connection of its lock was lost and it could not take another number yet; the log says why (outbox.worker)'
      : `this process takes itself for worker ${number}, but the server holds no lock of that number, so that others free what it has taken; it notices within seconds, and if not, look whether infrastructure.url leads through a transaction pooler`,
  );
  return [...lost, ...deaf];
}

function relay({ waiting, lagMs }: RelayFigures, pollMs: number): HealthProblem[] {
  const lag = lagMs ?? 0;
  return problem(
    beyond(lag - pollMs, relayLag),
    'relay',
    () =>
      `${countOf(waiting, 'event')} due and not relayed, the oldest for ${span(lag)}: no worker runs, its relay fails, or the broker is gone (outbox.relay in its log); start one, or mend what its log says`,
  );
}

function deliveries({ durables }: DeliveryFigures, pollMs: number): HealthProblem[] {
  return durables.flatMap(({ durable, waiting, oldestMs, unseenMs, paused }) => {
    if (paused) return [];
    const gone = unseenMs === null || unseenMs > unserved;
    if (gone && oldestMs > unserved)
      return problem(
        'red',
        'unserved',
        () =>
          `durable '${durable}': ${countOf(waiting, 'delivery', 'deliveries')} due, and no worker that handles it was seen ${unseenMs === null ? 'ever' : `for ${span(unseenMs)}`}: start one (look at handlers.only and except), or, if its code is gone, bring it back or end it (npx nestjs-outbox retire, or Durables.retire)`,
      );
    return problem(
      beyond(oldestMs - pollMs, deliveryWait),
      'deliveries',
      () =>
        `durable '${durable}': ${countOf(waiting, 'delivery', 'deliveries')} due and taken by no worker, the oldest for ${span(oldestMs)}: its handlers are too slow or too few; add workers, or raise handlers.concurrency`,
    );
  });
}

function overruns(all: readonly OverrunFigures[]): HealthProblem[] {
  return all.flatMap(({ durable, handlers, longestMs, apps }) =>
    problem(
      beyond(longestMs, overrun),
      'handler-hung',
      () =>
        `durable '${durable}': ${countOf(handlers, 'handler')} past the timeout and not ended, the longest for ${span(longestMs)}, on ${apps}. Each keeps a slot, and what was fetched behind it waits: restart that process, and pass ctx.signal to what the handler waits for`,
    ),
  );
}

function resumeWords(kind: Pause['kind'], name: string): string {
  return `npx nestjs-outbox resume ${kind === 'durable' ? '' : `--${kind} `}${argument(name)}`;
}

/** Never red: somebody wants it so. But what is forgotten waits for ever. */
function pauses(all: readonly Pause[]): HealthProblem[] {
  return all.flatMap(({ kind, name, since, until, by, reason }) =>
    problem(
      'yellow',
      'paused',
      () =>
        `${kind} '${name}' is paused since ${since.toISOString()}${until ? ` until ${until.toISOString()}` : ''} by ${by ?? 'somebody'}: ${reason ?? 'no reason given'}. What it holds waits and is not lost; ${resumeWords(kind, name)} lets it run`,
    ),
  );
}

/** Never red: what is dead waits for a person, and nothing else waits for it. */
function deadLetters({ open, oldest }: DeadLetterFigures): HealthProblem[] {
  return problem(
    open > 0 ? 'yellow' : undefined,
    'dead-letters',
    () =>
      `${countOf(open, 'dead letter')} open, the oldest since ${oldest?.toISOString()}: npx nestjs-outbox dead-letters lists them (as DeadLetters does); mend the cause, then retry or discard them`,
  );
}

function jobs({ running, lostLocks, failed }: JobFigures): HealthProblem[] {
  const lost = lostLocks.flatMap(({ job, at }) =>
    problem(
      'yellow',
      'job-lock-lost',
      () =>
        `job '${job}' lost the connection of its lock at ${at.toISOString()}, so that another process may have begun beside it; it should end when ctx.signal aborts. Look for a restart of the server, a terminated session, or a network that drops idle connections`,
    ),
  );
  const over = failed.flatMap(({ job, at, error }) =>
    problem(
      'yellow',
      'job-failed',
      () =>
        `job '${job}' gave its last slot up at ${at.toISOString()}: ${error}. It stands until a slot ends well; job_runs has its history`,
    ),
  );
  return [...running.flatMap(runningJob), ...lost, ...over];
}

function runningJob(run: RunningJob): HealthProblem[] {
  const { job, app, worker: number, slot, forMs, pastTimeoutMs, pastNextSlotMs } = run;
  const where = app ?? `worker ${number ?? 'unknown'}, which is not registered any more`;
  const what = `job '${job}' of slot ${slot.toISOString()} has run for ${span(forMs)} on ${where}`;
  if (pastTimeoutMs !== null)
    return problem(
      'red',
      'job-hung',
      () =>
        `${what}, ${span(pastTimeoutMs)} past its timeout. Its lock is not freed while it runs, so that no slot runs: pass ctx.signal to what it waits for; only the end of its method, or of that process, frees it`,
    );
  return problem(
    (pastNextSlotMs ?? 0) > lateFrom ? 'yellow' : undefined,
    'job-late',
    () =>
      `${what}, ${span(pastNextSlotMs ?? 0)} past its next slot, which does not run meanwhile: make it faster or rarer, and give it a timeout if it may hang`,
  );
}

function vacuum(holder: VacuumHolder): HealthProblem[] {
  const { forMs, transactions } = holder;
  const status = forMs === null ? beyond(transactions, vacuumHeldTransactions) : beyond(forMs, vacuumHeld);
  const since = forMs === null ? `for ${transactions} transactions` : `for ${span(forMs)}`;
  return problem(
    status,
    'vacuum',
    () => `${nameOf(holder)} has kept vacuum from removing dead rows ${since}; ${remedy(holder)}`,
  );
}

function nameOf({ kind, pid, applicationName, user, state, name }: VacuumHolder): string {
  switch (kind) {
    case 'session':
      return `session ${pid} ('${applicationName ?? ''}', role ${user}, ${state ?? 'state hidden from this role'})`;
    case 'standby':
      return `a query on standby '${applicationName ?? ''}' (sender ${pid})`;
    default:
      return `${kind} '${name}'${user === null ? '' : ` of role ${user}`}`;
  }
}

function remedy({ kind, pid, name }: VacuumHolder): string {
  switch (kind) {
    case 'session':
      return `end its transaction (SELECT pg_terminate_backend(${pid})), and keep long work out of transactions`;
    case 'standby':
      return 'end the long query there, or turn hot_standby_feedback off there';
    case 'prepared transaction':
      return `end it: COMMIT PREPARED '${name}', or ROLLBACK PREPARED`;
    case 'replication slot':
      return 'bring its standby back, end the long query there, or drop the slot if nobody needs it';
  }
}
