import type { JobRegistry } from './job.registry.js';
import type { JobContext } from './job-context.js';
import { cronProblem } from './periodic-job.resolver.js';
import { cronSchedule } from './schedule.js';

/** A job of the library's own: what it does is repeated at its next slot, so it is never retried. */
export interface LibraryJob {
  readonly name: string;
  /** Where its schedule is said, for people. */
  readonly where: string;
  readonly expression: string;
  run(context: JobContext): unknown;
}

/** Adds it to the jobs of the app, or what is wrong with its schedule to their problems. */
export function addLibraryJob(jobs: JobRegistry, { name, where, expression, run }: LibraryJob): void {
  const problem = cronProblem(expression, 'UTC');
  if (problem) {
    jobs.problem(`option '${where}': ${problem}`);
    return;
  }
  jobs.add({
    name,
    where,
    schedule: cronSchedule(expression, 'UTC'),
    cron: { expression, timeZone: 'UTC' },
    everyMs: undefined,
    parallel: false,
    missed: 'once',
    perTenant: undefined,
    timeoutMs: undefined,
    retries: 0,
    history: true,
    run: (context) => run(context as JobContext),
  });
}
