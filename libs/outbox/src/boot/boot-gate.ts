import { type Log, ThrottledLog } from '../core/throttled-log.js';
import { untilAnswered } from '../core/until-answered.js';
import { type BootProblem, OutboxBootError } from '../outbox.errors.js';
import type { BootCheck, BootContext, Warn } from './boot-check.js';
import { clockCheck } from './clock.check.js';
import { commandsCheck } from './commands.check.js';
import { dataSourceCheck } from './data-source.check.js';
import { driverCheck } from './driver.check.js';
import { checkGraph } from './graph-checks.js';
import { infrastructureCheck } from './infrastructure.check.js';
import { poolCheck } from './pool.check.js';
import { poolerCheck } from './pooler.check.js';
import { privilegesCheck } from './privileges.check.js';
import { renamesCheck } from './renames.check.js';
import { repositoriesCheck } from './repositories.check.js';
import { rowSecurityCheck } from './row-security.check.js';
import { schemaCheck } from './schema.check.js';
import { soleWorkerCheck } from './sole-worker.check.js';
import { strayDurablesCheck } from './stray-durables.check.js';
import { tenantRoleCheck } from './tenant-role.check.js';

/** Each stage needs the ones before it: no schema can be read through an unfit driver, no table without the right to. */
const databaseStages: readonly (readonly BootCheck[])[] = [
  [driverCheck],
  [poolerCheck],
  [infrastructureCheck],
  [schemaCheck],
  [privilegesCheck, rowSecurityCheck],
  [soleWorkerCheck, renamesCheck, strayDurablesCheck, commandsCheck, tenantRoleCheck, clockCheck],
];

/**
 * Looks at everything before anything starts. Throws `OutboxBootError` with every problem found, each with its remedy;
 * the database is asked only when the rest is in order. Warnings are one line each and keep nothing from starting.
 */
export async function passGate(context: BootContext, log: Log): Promise<void> {
  const throttled = new ThrottledLog(log);
  const warnings = new Set<string>();
  const problems = [...(await checkGraph(context, (message) => warnings.add(message)))];
  for (const check of [dataSourceCheck, repositoriesCheck, poolCheck])
    problems.push(...(await check.run(context, (message) => warnings.add(message))));
  if (problems.length === 0) context.database.bearEndedSessions();
  if (problems.length === 0)
    problems.push(
      ...(await checkDatabase(context, (message) => warnings.add(message), { attempt: waiting(throttled) })),
    );
  for (const warning of warnings) log.warn(warning);
  if (problems.length > 0) throw new OutboxBootError(problems);
}

/** Runs a check; at a boot it is tried again while the database is away. */
type Attempt = <T>(look: () => T | Promise<T>) => Promise<T>;

function waiting(log: ThrottledLog): Attempt {
  return (look) => untilAnswered(look, log);
}

interface DatabaseLook {
  readonly attempt?: Attempt;
  /** Names of checks that are left out. */
  readonly without?: readonly string[];
}

/** The part of the gate that asks the database, up to the first stage that finds something. */
export async function checkDatabase(
  context: BootContext,
  warn: Warn,
  { attempt = async (look) => look(), without = [] }: DatabaseLook = {},
): Promise<readonly BootProblem[]> {
  const problems: BootProblem[] = [];
  for (const stage of databaseStages) {
    const checks = stage.filter(({ name }) => !without.includes(name));
    for (const check of checks) problems.push(...(await attempt(() => check.run(context, warn))));
    if (problems.length > 0) break;
  }
  return problems;
}
