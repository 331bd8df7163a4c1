import type { OutboxEvent } from '../core/envelope.js';
import type { EventDefinition } from '../events/define-event.js';
import { covers, durableProblem, patternProblem } from '../events/event-type.js';
import type { KnownEvents } from '../events/known-events.js';
import type { BootProblem } from '../outbox.errors.js';
import { OptionChecker } from '../outbox.option-checker.js';
import type { OutboxSettings } from '../outbox.options.js';
import type { DeliveryContext } from './delivery-context.js';
import type { SubscribeOptions, SubscriptionMetadata } from './subscribe.decorator.js';
import type { Subscription } from './subscription.js';

const optionKeys = ['concurrency', 'maxAttempts', 'backoff', 'timeout', 'from', 'formerly'];

type Methods = Readonly<Record<string, (event: OutboxEvent, context: DeliveryContext) => unknown>>;

/** Turns what `@Subscribe` wrote into a subscription, and collects what is wrong with it. */
export function resolveSubscription(
  instance: object | undefined,
  className: string,
  metadata: SubscriptionMetadata,
  settings: OutboxSettings,
  known: KnownEvents,
): { subscription: Subscription; problems: readonly BootProblem[] } {
  const { method, durable } = metadata;
  const where = `${className}.${method}`;
  const check = new OptionChecker(`@Subscribe on ${where}`);
  const definitions = definitionsOf(metadata, known);
  const subscription: Subscription = {
    durable,
    where,
    types: metadata.events.map((event) => typeEntry(event, known)),
    ...resolveOptions(check, metadata.options, settings, definitions),
    covers: (type) =>
      subscription.types.some(({ pattern, formerly }) => covers(pattern, type) || formerly.includes(type)),
    definition: (type) => definitions.get(type) ?? known.definition(type),
    // By name and not the captured function: a decorator applied later may have replaced it.
    run: (event, context) => {
      const handler = (instance as Methods | undefined)?.[method];
      if (typeof handler !== 'function') throw new TypeError(`${where} is no method any more`);
      return handler.call(instance, event, context);
    },
  };
  return { subscription, problems: [...nameProblems(metadata, subscription, where), ...check.problems] };
}

function typeEntry(event: EventDefinition | string, known: KnownEvents): Subscription['types'][number] {
  const definition = typeof event === 'string' ? known.definition(event) : event;
  if (!definition) return { pattern: event as string, formerly: [] };
  return { pattern: definition.type, formerly: definition.formerly };
}

/** The definitions that the subscription itself names; a manifest's are asked for when an event comes. */
function definitionsOf(metadata: SubscriptionMetadata, known: KnownEvents): ReadonlyMap<string, EventDefinition> {
  const own = metadata.events.filter((event) => typeof event !== 'string');
  for (const definition of own) known.define(definition);
  return new Map(own.flatMap((d) => [d.type, ...d.formerly].map((name) => [name, d] as const)));
}

function resolveOptions(
  check: OptionChecker,
  options: SubscribeOptions,
  settings: OutboxSettings,
  definitions: ReadonlyMap<string, EventDefinition>,
) {
  check.keys('', options, optionKeys);
  const commands = definitions.size > 0 && [...definitions.values()].every(({ kind }) => kind === 'command');
  return {
    maxAttempts: check.integer('maxAttempts', options.maxAttempts, 1, 1_000, settings.maxAttempts),
    delayOf: check.backoff('backoff', options.backoff) ?? settings.backoff,
    timeoutMs: check.timer('timeout', options.timeout, settings.timeoutMs),
    concurrency:
      options.concurrency === undefined ? undefined : check.integer('concurrency', options.concurrency, 1, 1_000, 1),
    from: check.oneOf('from', options.from ?? (commands ? 'beginning' : undefined), ['registration', 'beginning']),
    formerly: options.formerly ?? [],
  };
}

function nameProblems(metadata: SubscriptionMetadata, { types, formerly }: Subscription, where: string): BootProblem[] {
  const patterns = types.map(({ pattern }) => [pattern, patternProblem(pattern)] as const);
  const durables = [metadata.durable, ...formerly].map((name) => [name, durableProblem(name)] as const);
  const problems = [...patterns, ...durables].flatMap(([name, problem]) =>
    problem ? [{ check: 'names', message: `@Subscribe on ${where}: ${JSON.stringify(name)} ${problem}` }] : [],
  );
  if (types.length > 0) return problems;
  return [...problems, { check: 'names', message: `@Subscribe on ${where} names no event type; name at least one` }];
}
