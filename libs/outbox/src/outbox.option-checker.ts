import { defaultLadderMs, jittered, ladderStep } from './core/backoff.js';
import { type Duration, durationRemedy, parseDuration } from './core/duration.js';
import { didYouMean } from './core/nearest.js';
import type { TransportFactory } from './core/transport.js';
import type { BootProblem } from './outbox.errors.js';
import { schemaNameProblem } from './tables/schema/schema-name.js';

/** Delays after the first, second … failed attempt (the last one serves for all that follow), or a function of both. */
export type Backoff = readonly Duration[] | ((attempt: number, error: unknown) => Duration);

/** A backoff, resolved: milliseconds after failed attempt `attempt`. */
export type DelayOf = (attempt: number, error: unknown) => number;

/** Node's timers hold 31 bits of milliseconds; one that is longer fires at once. */
const longestTimerMs = 2 ** 31 - 1;
const dayMs = 86_400_000;

/** Collects what is wrong with options, so that one report names everything. Used for `@Subscribe` as well. */
export class OptionChecker {
  readonly problems: BootProblem[] = [];

  constructor(private readonly where = 'OutboxModule.forRoot') {}

  keys(group: string, value: unknown, allowed: readonly string[]): void {
    if (value === undefined || value === null) return;
    if (typeof value !== 'object') {
      this.add(`option '${group}' must be an object with some of: ${allowed.join(', ')}`);
      return;
    }
    for (const key of Object.keys(value)) {
      const name = group ? `${group}.${key}` : key;
      if (!allowed.includes(key))
        this.add(`unknown option '${name}'${didYouMean(key, allowed)} (known: ${allowed.join(', ')})`);
    }
  }

  oneOf<const T extends string>(name: string, value: T | undefined, allowed: readonly [T, ...T[]]): T {
    if (value === undefined) return allowed[0];
    if (!allowed.includes(value))
      this.add(`option '${name}' is ${JSON.stringify(value)}; it is one of ${allowed.map((a) => `'${a}'`).join(', ')}`);
    return value;
  }

  boolean(name: string, value: boolean | undefined, fallback: boolean): boolean {
    if (value === undefined || typeof value === 'boolean') return value ?? fallback;
    this.add(`option '${name}' is ${JSON.stringify(value)}; it is true or false`);
    return fallback;
  }

  /** `undefined` when none was given. */
  callable<T>(name: string, value: T | undefined): T | undefined {
    if (value !== undefined && typeof value !== 'function')
      this.add(`option '${name}' is ${JSON.stringify(value)}; it is a function`);
    return value;
  }

  integer(name: string, value: number | undefined, least: number, most: number, fallback: number): number {
    if (value === undefined) return fallback;
    if (Number.isInteger(value) && value >= least && value <= most) return value;
    this.add(`option '${name}' is ${JSON.stringify(value)}; it is a whole number from ${least} to ${most}`);
    return fallback;
  }

  duration(name: string, value: Duration | undefined, fallbackMs: number): number {
    if (value === undefined) return fallbackMs;
    const milliseconds = parseDuration(value);
    if (milliseconds !== undefined && milliseconds >= 1) return milliseconds;
    this.add(`option '${name}' is ${JSON.stringify(value)}, which is no duration; ${durationRemedy}`);
    return fallbackMs;
  }

  /** A duration between two numbers of days, both included. */
  days(name: string, value: Duration | undefined, least: number, most: number, fallback: number): number {
    const milliseconds = this.duration(name, value, fallback * dayMs);
    if (milliseconds >= least * dayMs && milliseconds <= most * dayMs) return milliseconds;
    this.add(`option '${name}' is ${JSON.stringify(value)}; it is a duration from '${least}d' to '${most}d'`);
    return fallback * dayMs;
  }

  /** A duration that a timer of this process waits for, a tenth of jitter included. */
  timer(name: string, value: Duration | undefined, fallbackMs: number): number {
    const milliseconds = this.duration(name, value, fallbackMs);
    if (milliseconds * 1.1 <= longestTimerMs) return milliseconds;
    this.add(`option '${name}' is ${JSON.stringify(value)}, longer than a timer can wait; at most '22d'`);
    return fallbackMs;
  }

  /** `undefined` when none was given; a function's answers are checked when it gives them. */
  backoff(name: string, value: Backoff | undefined): DelayOf | undefined {
    if (value === undefined) return undefined;
    if (typeof value === 'function')
      return (attempt, error) => parseDuration(value(attempt, error)) ?? ladderStep(defaultLadderMs, attempt);
    if (!Array.isArray(value) || value.length === 0) {
      this.add(`option '${name}' must be a list of at least one duration, or a function (attempt, error) => duration`);
      return undefined;
    }
    const ladder = value.map((step: Duration, i) => this.duration(`${name}[${i}]`, step, 1_000));
    return (attempt) => jittered(ladderStep(ladder, attempt));
  }

  /** Names of durables in which `*` stands for any part. */
  durables(name: string, value: unknown): readonly string[] {
    const fits = (each: unknown): each is string => typeof each === 'string' && /^[a-z0-9_*-]{1,64}$/.test(each);
    if (Array.isArray(value) && value.every(fits)) return value;
    this.add(
      `option '${name}' is ${JSON.stringify(value)}; it is a list of durables such as ['ledger', 'receipt-*'], where * stands for any part of a name`,
    );
    return [];
  }

  transport(value: TransportFactory | undefined, fallback: TransportFactory): TransportFactory {
    if (value === undefined || (typeof value === 'object' && typeof value?.create === 'function'))
      return value ?? fallback;
    this.add("option 'transport' must be a transport, such as postgres() or memory()");
    return fallback;
  }

  schemaName(value: string | undefined): string {
    const problem = value === undefined ? undefined : schemaNameProblem(value);
    if (problem) this.add(problem);
    return problem ? 'outbox' : (value ?? 'outbox');
  }

  add(message: string): void {
    this.problems.push({ check: 'options', message: `${this.where}: ${message}` });
  }
}
