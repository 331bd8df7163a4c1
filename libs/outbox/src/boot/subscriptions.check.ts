import type { BootCheck, GraphContext } from './boot-check.js';

/** Names, options, scopes and duplicate durables of the subscriptions: found when they were explored. */
export const subscriptionsCheck: BootCheck<GraphContext> = {
  name: 'subscriptions',
  run: ({ registry }) => registry.problems,
};
