import { Option } from 'nest-commander';
import { didYouMean } from '../core/nearest.js';
import type { DeliveryState } from '../index.js';
import { deliveryStates } from '../inspect/delivery-info.js';
import { wrongUsage } from './cli-error.js';
import { parseWhen } from './when.js';

/** One option of a command. */
export interface OptionSpec {
  readonly flags: string;
  readonly description: string;
  readonly parse?: (given: string) => unknown;
}

/** Where the database is, and how to answer. */
export interface CommonOptions {
  readonly url?: string;
  readonly schema?: string;
  readonly config?: string;
  readonly json?: boolean;
}

export const common: readonly OptionSpec[] = [
  { flags: '--url <url>', description: 'the database; default: DATABASE_URL, then the config file' },
  { flags: '--schema <name>', description: "the outbox's schema; default: the config file's, then outbox" },
  {
    flags: '--config <file>',
    description: 'default: nestjs-outbox.config.{js,mjs,cjs,json}, or that key of package.json',
  },
  { flags: '--json', description: 'answer in JSON, for scripts' },
];

/** Goes to `outbox.audit`. */
export interface ActingOptions {
  readonly by?: string;
  readonly reason?: string;
}

export const acting: readonly OptionSpec[] = [
  { flags: '--by <who>', description: 'who does it, for the audit; default: user@host' },
  { flags: '--reason <text>', description: 'why, for the audit' },
];

export interface FilterOptions {
  readonly state?: readonly DeliveryState[];
  readonly durable?: string;
  readonly type?: string;
  readonly tenant?: string;
  readonly subject?: string;
  readonly error?: string;
  readonly from?: Date;
  readonly to?: Date;
}

export const filter: readonly OptionSpec[] = [
  { flags: '--state <states>', description: `${deliveryStates.join(', ')}; several with commas`, parse: states },
  { flags: '--durable <name>', description: 'of this durable' },
  { flags: '--type <type>', description: 'of this type or pattern, such as billing.*.*' },
  { flags: '--tenant <id>', description: 'of this tenant' },
  { flags: '--subject <subject>', description: 'of this subject' },
  { flags: '--error <text>', description: 'whose last error contains this, in any case' },
  { flags: '--from <time>', description: 'published at or after: 06:00, 2h (ago), or ISO', parse: past('--from') },
  { flags: '--to <time>', description: 'published before', parse: past('--to') },
];

export interface ManyActionOptions {
  readonly limit?: number;
  readonly dryRun?: boolean;
  readonly yes?: boolean;
}

export const limit: OptionSpec = { flags: '--limit <n>', description: 'at most so many', parse: count('--limit', 1) };
export const yes: OptionSpec = { flags: '--yes', description: 'do not ask' };
export const many: readonly OptionSpec[] = [
  limit,
  { flags: '--dry-run', description: 'change nothing, and say what would be done' },
  yes,
];

/** Declares options on a command class, as methods with nest-commander's `@Option` would one by one. */
export function Options(...groups: readonly (OptionSpec | readonly OptionSpec[])[]): ClassDecorator {
  return ({ prototype }) => {
    for (const { flags, description, parse } of groups.flat()) {
      const name = `option ${flags}`;
      const value = (given: string): unknown => (parse ? parse(given) : (given ?? true));
      const descriptor = { value, configurable: true };
      Object.defineProperty(prototype, name, descriptor);
      Option({ flags, description })(prototype, name, descriptor);
    }
  };
}

export function count(option: string, least: number): (given: string) => number {
  return (given) => {
    const n = Number(given);
    if (!/^\d+$/.test(given) || !Number.isSafeInteger(n) || n < least)
      throw wrongUsage(`${option} '${given}' is no whole number from ${least} on`);
    return n;
  };
}

function past(option: string): (given: string) => Date {
  return (given) => parseWhen(option, given, 'last');
}

function states(given: string): DeliveryState[] {
  return given.split(',').map((part) => {
    const name = part.trim();
    const state = deliveryStates.find((known) => known === name);
    if (!state)
      throw wrongUsage(`--state '${name}' is none of ${deliveryStates.join(', ')}${didYouMean(name, deliveryStates)}`);
    return state;
  });
}
