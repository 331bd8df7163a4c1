import { messageOf } from '../outbox.job-errors.js';
import { OptionChecker } from '../outbox.option-checker.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { JobDefinition } from './job-definition.js';
import type { JobMetadata, JobSchedule, PeriodicJobOptions } from './periodic-job.decorator.js';
import { cronSchedule, intervalSchedule, shortestGap } from './schedule.js';

const optionKeys = ['name', 'parallel', 'timeZone', 'missed', 'perTenant', 'timeout', 'retries'];
const nameShape = /^[\w$.:-]{1,100}$/;
/** An interval is at least this long: each tick is a few messages to the database. */
const leastEveryMs = 100;
/** Jobs that tick more often keep their last state and no history: a job of every second would make 86,400 rows a day. */
const historyFromMs = 60_000;

/** What a job is when it is due: by the clock of a zone, or every so often. */
type When = Pick<JobDefinition, 'schedule' | 'cron' | 'everyMs'>;

/** Turns what `@PeriodicJob` wrote into a job, and collects what is wrong with it. */
export function resolveJob(
  instance: object | undefined,
  className: string,
  metadata: JobMetadata,
  settings: OutboxSettings,
): { definition: JobDefinition | undefined; problems: readonly string[] } {
  const { method, options } = metadata;
  const where = `${className}.${method}`;
  const check = new OptionChecker(`@PeriodicJob on ${where}`);
  check.keys('', options, optionKeys);
  const name = resolveName(check, options.name ?? where);
  const when = resolveWhen(check, metadata.schedule, options);
  const rest = resolveOptions(check, options, when?.cron !== undefined, settings);
  const problems = check.problems.map(({ message }) => message);
  if (!when || !name) return { definition: undefined, problems };
  const definition = {
    name,
    where,
    ...when,
    ...rest,
    history: !rest.parallel && shortestGap(when.schedule, Date.now()) >= historyFromMs,
    // By name and not the captured function: a decorator applied later may have replaced it.
    run: (context: Parameters<JobDefinition['run']>[0]) => {
      const work = (instance as Record<string, unknown> | undefined)?.[method];
      if (typeof work !== 'function') throw new TypeError(`${where} is no method any more`);
      return work.call(instance, context);
    },
  };
  return { definition, problems };
}

/** Why a cron expression cannot be used, or `undefined`. */
export function cronProblem(expression: unknown, timeZone: unknown): string | undefined {
  if (typeof expression !== 'string') return `${JSON.stringify(expression)} is no cron expression`;
  if (typeof timeZone !== 'string' || !isZone(timeZone))
    return `the time zone ${JSON.stringify(timeZone)} is unknown; use a name such as 'Europe/Vienna', or 'UTC'`;
  try {
    // Asking for the next date is the only way to find 30 February.
    cronSchedule(expression, timeZone).next(Date.now());
    return undefined;
  } catch (error) {
    const [why = ''] = messageOf(error).split('\n');
    return why.includes('No execution date')
      ? `cron expression '${expression}' never fires: no date within 8 years fits it`
      : `cron expression '${expression}' cannot be used: ${why} (five fields: minute, hour, day of the month, month, day of the week; six with seconds in front; or @hourly, @daily, @weekly, @monthly, @yearly)`;
  }
}

function resolveName(check: OptionChecker, name: unknown): string | undefined {
  if (typeof name === 'string' && nameShape.test(name) && !name.startsWith('outbox.')) return name;
  check.add(
    `the name ${JSON.stringify(name)} is not 1 to 100 letters, digits, dots, colons, dashes or underscores, or begins with 'outbox.', which is the library's`,
  );
  return undefined;
}

function resolveWhen(check: OptionChecker, schedule: JobSchedule, options: PeriodicJobOptions): When | undefined {
  const timeZone = options.timeZone ?? 'UTC';
  if (typeof schedule === 'string') {
    const problem = cronProblem(schedule, timeZone);
    if (problem) check.add(problem);
    return problem
      ? undefined
      : { schedule: cronSchedule(schedule, timeZone), cron: { expression: schedule, timeZone }, everyMs: undefined };
  }
  if (options.timeZone !== undefined) check.add('an interval has no time zone; leave timeZone out');
  const everyMs = check.duration('every', schedule?.every, 0);
  if (everyMs >= leastEveryMs && Number.isInteger(everyMs))
    return { schedule: intervalSchedule(everyMs), cron: undefined, everyMs };
  check.add(
    `the schedule ${JSON.stringify(schedule)} is neither a cron expression nor { every: '1s' } of at least ${leastEveryMs} ms`,
  );
  return undefined;
}

function resolveOptions(check: OptionChecker, options: PeriodicJobOptions, cron: boolean, settings: OutboxSettings) {
  const { perTenant } = options;
  const parallel = check.boolean('parallel', options.parallel, false);
  check.keys('perTenant', perTenant, ['concurrency']);
  if (perTenant && settings.tenants === undefined)
    check.add('perTenant needs the tenants: OutboxModule.forRoot({ tenancy: { list: (manager) => … } })');
  for (const key of ['missed', 'retries', 'perTenant'] as const)
    if (parallel && options[key] !== undefined)
      check.add(
        `a parallel job runs on every instance for itself, without a slot of its own to remember; leave out ${key}`,
      );
  return {
    parallel,
    missed: check.oneOf('missed', options.missed ?? (cron ? 'once' : 'skip'), ['skip', 'once']),
    perTenant: perTenant && check.integer('perTenant.concurrency', perTenant.concurrency, 1, 1_000, 1),
    timeoutMs: options.timeout === undefined ? undefined : check.timer('timeout', options.timeout, 0),
    retries: parallel ? 0 : check.integer('retries', options.retries, 0, 100, 3),
  };
}

function isZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name });
    return true;
  } catch {
    return false;
  }
}
