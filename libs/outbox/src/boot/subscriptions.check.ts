import type { BootCheck } from './boot-check.js';

/** Names, options, scopes and duplicate durables of the subscriptions: found when they were explored. */
export const subscriptionsCheck: BootCheck = { name: 'subscriptions', run: ({ registry }) => registry.problems };
