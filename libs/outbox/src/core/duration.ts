import ms, { type StringValue } from 'ms';

/**
 * A length of time with its unit: `'500ms'`, `'30s'`, `'10m'`, `'1.5h'`, `'7d'`, `'2w'`.
 * A bare number is refused on purpose: nobody can tell seconds from milliseconds by looking at it.
 */
export type Duration = `${number}${'ms' | 's' | 'm' | 'h' | 'd' | 'w'}`;

const shape = /^\d+(\.\d+)?(ms|s|m|h|d|w)$/;

/** Milliseconds of a duration, or `undefined` when it is not one. */
export function parseDuration(value: unknown): number | undefined {
  if (typeof value !== 'string' || value.length > 40 || !shape.test(value)) return undefined;
  const milliseconds = ms(value as StringValue);
  return Number.isFinite(milliseconds) ? milliseconds : undefined;
}

/** The remedy that every message about a bad duration ends with. */
export const durationRemedy = "write a number and its unit, such as '500ms', '30s', '10m', '1h', '7d' or '2w'";
