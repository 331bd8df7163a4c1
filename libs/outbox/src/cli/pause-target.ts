import { didYouMean } from '../core/nearest.js';
import type { PauseTarget } from '../index.js';
import { CliError, wrongUsage } from './cli-error.js';
import { exit } from './exit-codes.js';
import { knownDurable } from './named.js';
import type { OptionSpec } from './options.js';
import type { Connected } from './session.js';

export interface TargetOptions {
  readonly type?: string;
  readonly tenant?: string;
  readonly job?: string;
}

export const target: readonly OptionSpec[] = [
  { flags: '--type <type>', description: 'instead of a durable: a type or pattern' },
  { flags: '--tenant <id>', description: 'instead of a durable: a tenant' },
  { flags: '--job <name>', description: 'instead of a durable: a periodic job' },
];

/** The one thing that is meant. */
export function targetFrom(verb: string, durable: string | undefined, options: TargetOptions): PauseTarget {
  const { type, tenant, job } = options;
  const targets: PauseTarget[] = [];
  if (durable !== undefined) targets.push({ durable });
  if (type !== undefined) targets.push({ type });
  if (tenant !== undefined) targets.push({ tenantId: tenant });
  if (job !== undefined) targets.push({ job });
  const [target] = targets;
  if (!target || targets.length > 1)
    throw wrongUsage(`${verb} what? Give a durable, or one of --type, --tenant and --job`);
  return target;
}

/** A pause of what is misspelt would stop nothing and say nothing. Types and tenants are in no list. */
export async function known({ durables, inspector }: Connected, target: PauseTarget): Promise<void> {
  if ('durable' in target) await knownDurable(durables, target.durable);
  if ('job' in target)
    knownJob(
      target.job,
      (await inspector.periodic()).map(({ job }) => job),
    );
}

export function knownJob(job: string, jobs: readonly string[]): void {
  if (jobs.includes(job)) return;
  const known = jobs.length === 0 ? 'no job is registered' : `there are ${jobs.join(', ')}`;
  throw new CliError(exit.problem, `there is no job '${job}'${didYouMean(job, jobs) || `: ${known}`}`);
}

export function nameOf(target: PauseTarget): string {
  const [[kind, name] = ['', '']] = Object.entries(target);
  return `${kind === 'tenantId' ? 'tenant' : kind} '${name}'`;
}
