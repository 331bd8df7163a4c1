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

/** Why a string is no durable's name, or `undefined`. */
export function durableProblem(durable: unknown): string | undefined {
  if (typeof durable !== 'string') return `must be a string such as 'ledger', not ${typeof durable}`;
  if (durable.length > durableLength) return `has ${durable.length} characters; at most ${durableLength} are allowed`;
  if (durableName.test(durable)) return undefined;
  return "is no durable's name: write one lower-case token such as 'ledger' (letters, digits, '_' and '-', starting with a letter)";
}
