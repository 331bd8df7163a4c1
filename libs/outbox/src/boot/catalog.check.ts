import { didYouMean } from '../core/nearest.js';
import { eventTypeProblem, isPattern } from '../events/event-type.js';
import type { BootProblem } from '../outbox.errors.js';
import type { BootCheck, GraphContext } from './boot-check.js';

/** A subscription to a type that nobody emits waits for ever without a word; usually it is a misspelling. */
export const catalogCheck: BootCheck<GraphContext> = {
  name: 'catalog',
  run: ({ catalog, registry, roots }) => {
    const problems: BootProblem[] = [];
    for (const type of catalog.types) {
      const problem = eventTypeProblem(type);
      if (problem)
        problems.push({ check: 'names', message: `OutboxModule.forFeature: ${JSON.stringify(type)} ${problem}` });
    }
    // With a second root the manifests are in the catalog of one of the two, and the other would accuse every type.
    if (roots > 1) return problems;
    for (const { types, where, durable } of registry.all) {
      for (const { pattern: type } of types) {
        if (isPattern(type) || catalog.has(type) || eventTypeProblem(type)) continue;
        problems.push({
          check: 'catalog',
          message: `${where} (durable '${durable}') subscribes to '${type}', which no module of this app emits or accepts${didYouMean(type, catalog.types)}; add it to OutboxModule.forFeature({ emits: ['${type}'] }) where it is published, or to accepts when another app publishes it`,
        });
      }
    }
    return problems;
  },
};
