import type { BootCheck, GraphContext } from './boot-check.js';

/** Nest keeps dynamic modules apart by object: a second forRoot would run every handler's relay and consumer twice. */
export const singleRootCheck: BootCheck<GraphContext> = {
  name: 'forRoot',
  run: ({ roots }) =>
    roots <= 1
      ? []
      : [
          {
            check: 'forRoot',
            message: `OutboxModule.forRoot (or forRootAsync) is imported ${roots} times; import it once, in the root module. It is global: feature modules need no more than OutboxModule.forFeature`,
          },
        ],
};
