import type { OutboxSettings } from '../outbox.options.js';

/** Whether a durable is one of those that `pattern` names; `*` stands for any part of a name, an empty one too. */
export function namedBy(pattern: string, durable: string): boolean {
  const parts = pattern.split('*').map((part) => part.replaceAll(/[^a-z0-9_-]/g, ''));
  return new RegExp(`^${parts.join('.*')}$`).test(durable);
}

/** Whether this process handles a durable that its modules have. */
export function isServed({ only, except }: Pick<OutboxSettings, 'only' | 'except'>, durable: string): boolean {
  const named = (pattern: string): boolean => namedBy(pattern, durable);
  return (only === undefined || only.some(named)) && !except.some(named);
}
