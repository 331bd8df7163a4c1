import type { BootCheck, GraphContext } from './boot-check.js';

/** Unknown keys, bad durations, figures out of range: found when the options were resolved. */
export const optionsCheck: BootCheck<GraphContext> = { name: 'options', run: ({ settings }) => settings.problems };
