import { namedBy } from '../consume/served.js';
import type { Subscription } from '../consume/subscription.js';
import { didYouMean } from '../core/nearest.js';
import type { BootProblem } from '../outbox.errors.js';
import type { BootCheck, GraphContext } from './boot-check.js';

/** Names, options, scopes and duplicate durables of the subscriptions: found when they were explored. */
export const subscriptionsCheck: BootCheck<GraphContext> = {
  name: 'subscriptions',
  run: (context) => {
    const { registry } = context;
    return [...registry.problems, ...registry.all.flatMap((s) => reused(s, registry.all)), ...unmatched(context)];
  },
};

/** Usually a misspelling: this process would handle less than it is meant to, or more. */
function unmatched({ settings, registry }: GraphContext): BootProblem[] {
  const durables = registry.all.map(({ durable }) => durable);
  const given = { 'handlers.only': settings.only ?? [], 'handlers.except': settings.except };
  return Object.entries(given).flatMap(([option, patterns]) =>
    patterns
      .filter((pattern) => !durables.some((durable) => namedBy(pattern, durable)))
      .map((pattern) => ({
        check: 'durables',
        message: `option '${option}' names '${pattern}', and no durable of this app is called so${didYouMean(pattern, durables)}; its durables: ${durables.join(', ') || 'none'}`,
      })),
  );
}

/** In the database a former name stands for the durable that bore it: two handlers would share its one number. */
function reused({ durable, where, formerly }: Subscription, all: readonly Subscription[]): BootProblem[] {
  return formerly.flatMap((name) =>
    all
      .filter((other) => other.durable !== durable && (other.durable === name || other.formerly.includes(name)))
      .map((other) => ({
        check: 'durables',
        message: `${where} (durable '${durable}') was formerly '${name}', and ${other.where} (durable '${other.durable}') claims that name as well; a former name goes on standing for the durable that bore it, so give ${other.where} another name, or take '${name}' out of one of the two`,
      })),
  );
}
