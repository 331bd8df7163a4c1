/** `module.entity.verb`: three tokens, each a lower-case letter followed by letters, digits, `_` or `-`; 128 characters in all. */
const token = '[a-z][a-z0-9_-]*';
const eventType = new RegExp(`^${token}\\.${token}\\.${token}$`);
const durableName = new RegExp(`^${token}$`);

export const eventTypeLength = 128;
export const durableLength = 64;

/** Why a string is no event type, or `undefined`. */
export function eventTypeProblem(type: unknown): string | undefined {
  if (typeof type !== 'string') return `must be a string such as 'billing.invoice.paid', not ${typeof type}`;
  if (type.length > eventTypeLength) return `has ${type.length} characters; at most ${eventTypeLength} are allowed`;
  if (eventType.test(type)) return undefined;
  return "is no event type: write three lower-case tokens, module.entity.verb, such as 'billing.invoice.paid' (letters, digits, '_' and '-', each token starting with a letter)";
}

const eventPattern = new RegExp(`^(${token}|\\*)\\.(${token}|\\*)\\.(${token}|\\*)$`);

/** Whether a subscription's name is a pattern: `*` stands for one token. */
export function isPattern(name: string): boolean {
  return name.includes('*');
}

/** Why a string is neither a type nor a pattern, or `undefined`. */
export function patternProblem(pattern: unknown): string | undefined {
  if (typeof pattern !== 'string' || !isPattern(pattern)) return eventTypeProblem(pattern);
  if (eventPattern.test(pattern)) return undefined;
  return "is no pattern: write three tokens, each a name or '*', such as 'billing.*.*' ('*' stands for one whole token)";
}

/** Whether a type, or pattern, covers an event's type. */
export function covers(pattern: string, type: string): boolean {
  if (!isPattern(pattern)) return pattern === type;
  const wanted = pattern.split('.');
  const tokens = type.split('.');
  return wanted.length === tokens.length && wanted.every((token, i) => token === '*' || token === tokens[i]);
}

/** Why a string is no durable's name, or `undefined`. */
export function durableProblem(durable: unknown): string | undefined {
  if (typeof durable !== 'string') return `must be a string such as 'ledger', not ${typeof durable}`;
  if (durable.length > durableLength) return `has ${durable.length} characters; at most ${durableLength} are allowed`;
  if (durableName.test(durable)) return undefined;
  return "is no durable's name: write one lower-case token such as 'ledger' (letters, digits, '_' and '-', starting with a letter)";
}
