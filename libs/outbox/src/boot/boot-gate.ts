import { type Log, ThrottledLog } from '../core/throttled-log.js';
import { untilAnswered } from '../core/until-answered.js';
import { type BootProblem, OutboxBootError } from '../outbox.errors.js';
import type { BootCheck, BootContext } from './boot-check.js';
import { catalogCheck } from './catalog.check.js';
import { driverCheck } from './driver.check.js';
import { optionsCheck } from './options.check.js';
import { poolCheck } from './pool.check.js';
import { schemaCheck } from './schema.check.js';
import { singleRootCheck } from './single-root.check.js';
import { soleWorkerCheck } from './sole-worker.check.js';
import { subscriptionsCheck } from './subscriptions.check.js';

/** In the order in which people want to read them. The database is asked only when the rest is in order, driver first. */
const checks: readonly BootCheck[] = [
  singleRootCheck,
  optionsCheck,
  subscriptionsCheck,
  catalogCheck,
  poolCheck,
  driverCheck,
  schemaCheck,
  soleWorkerCheck,
];

/** Looks at everything before anything starts. Throws `OutboxBootError` with every problem found, each with its remedy. */
export async function passGate(context: BootContext, log: Log): Promise<void> {
  const throttled = new ThrottledLog(log);
  const problems: BootProblem[] = [];
  for (const check of checks.filter((c) => !c.asksDatabase)) problems.push(...(await check.run(context)));
  for (const check of checks.filter((c) => c.asksDatabase)) {
    // Each of these needs the ones before it: no schema can be read through an unfit driver.
    if (problems.length > 0) break;
    problems.push(...(await untilAnswered(() => check.run(context), throttled)));
  }
  if (problems.length > 0) throw new OutboxBootError(problems);
}
