import type { BootProblem } from '../outbox.errors.js';
import type { BootCheck, GraphContext, Warn } from './boot-check.js';
import { catalogCheck } from './catalog.check.js';
import { jobsCheck } from './jobs.check.js';
import { memoryRoleCheck } from './memory-role.check.js';
import { optionsCheck } from './options.check.js';
import { singleRootCheck } from './single-root.check.js';
import { subscriptionsCheck } from './subscriptions.check.js';

/** In the order in which people want to read them. */
const checks: readonly BootCheck<GraphContext>[] = [
  singleRootCheck,
  optionsCheck,
  memoryRoleCheck,
  subscriptionsCheck,
  catalogCheck,
  jobsCheck,
];

/** The part of the gate that needs neither a database nor instances. */
export async function checkGraph(context: GraphContext, warn: Warn): Promise<readonly BootProblem[]> {
  const problems: BootProblem[] = [];
  for (const check of checks) problems.push(...(await check.run(context, warn)));
  return problems;
}
