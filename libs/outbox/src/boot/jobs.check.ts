import type { BootCheck, GraphContext } from './boot-check.js';

/** Names, schedules, options and scopes of the periodic jobs: found when they were explored. */
export const jobsCheck: BootCheck<GraphContext> = {
  name: 'jobs',
  run: ({ jobs }) => jobs.problems,
};
