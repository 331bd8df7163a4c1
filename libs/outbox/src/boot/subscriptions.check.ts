import type { Subscription } from '../consume/subscription.js';
import type { BootProblem } from '../outbox.errors.js';
import type { BootCheck, GraphContext } from './boot-check.js';

/** Names, options, scopes and duplicate durables of the subscriptions: found when they were explored. */
export const subscriptionsCheck: BootCheck<GraphContext> = {
  name: 'subscriptions',
  run: ({ registry }) => [...registry.problems, ...registry.all.flatMap((s) => reused(s, registry.all))],
};

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
