import { durationRemedy, parseDuration } from '../core/duration.js';
import { InvalidEventError } from '../outbox.errors.js';
import { interval } from '../tables/wire/statement.js';
import type { OutgoingEvent } from './event-publisher.js';
import { typeOf } from './event-ref.js';
import { eventTypeProblem } from './event-type.js';
import { jsonText, textProblem } from './json-problem.js';

/** An event as its columns, checked: nothing in it can be refused by Postgres. */
export interface EventRow {
  readonly type: string;
  readonly tenant: string | null;
  readonly subject: string | null;
  readonly payload: string;
  readonly headers: string | null;
  /** An interval, or null. */
  readonly delay: string | null;
  /** A timestamp, or null. */
  readonly runAt: string | null;
  /** What the event is unique by: 'p' for its payload, 'k' and the caller's key, or null. */
  readonly uniqueBy: string | null;
  /** How long that stands: an interval, or null. */
  readonly uniqueFor: string | null;
}

const headerBytes = 16 * 1024;
/** Of a tenant or a subject. */
export const eventNameLength = 255;
export const keyLength = 1_000;
/** Beyond this a length of time is almost always a wrong unit. */
const longestMs = 10 * 365.25 * 86_400_000;

/** What the settings say about an event. */
export interface EventLimits {
  readonly maxEventBytes: number;
  /** How long a key stands that says nothing else: as long as events are kept. */
  readonly retentionMs: number;
}

/** Checks one event and turns it into its columns. Throws `InvalidEventError`, naming the path of the value at fault. */
export function eventRow(event: OutgoingEvent, tenant: string | null, limits: EventLimits): EventRow {
  const type = typeOf(event.event);
  const refuse = (path: string, problem: string): never => {
    throw new InvalidEventError(String(type).slice(0, 160), path, problem);
  };
  const typeProblem = eventTypeProblem(type);
  if (typeProblem) refuse('its type', typeProblem);
  return {
    type,
    tenant: name('the tenant', tenant, refuse),
    subject: name('the subject', event.subject ?? null, refuse),
    payload: json('payload', event.payload, limits.maxEventBytes, refuse),
    headers: event.headers === undefined ? null : headers(event.headers, refuse),
    delay: delay(event, refuse),
    runAt: runAt(event, refuse),
    ...unique(event.unique, limits.retentionMs, refuse),
  };
}

type Refuse = (path: string, problem: string) => never;

function name(what: string, value: unknown, refuse: Refuse): string | null {
  if (value === null) return null;
  if (typeof value !== 'string') return refuse(what, `must be a string, not ${typeof value}`);
  return textAsGiven(what, value, eventNameLength, refuse);
}

/** As it is, when Postgres takes it. */
export function textAsGiven(what: string, value: string, longest: number, refuse: Refuse): string {
  if (value === '') return refuse(what, 'is an empty string; leave it out instead');
  if (value.length > longest) return refuse(what, `has ${value.length} characters; at most ${longest} are allowed`);
  const problem = textProblem(value, what);
  return problem ? refuse(problem.path, problem.problem) : value;
}

function json(path: string, value: unknown, limit: number, refuse: Refuse): string {
  const text = jsonText(value, path);
  if (typeof text !== 'string') return refuse(text.path, text.problem);
  const bytes = Buffer.byteLength(text);
  if (bytes > limit)
    refuse(path, `is ${bytes} bytes as JSON; at most ${limit} are allowed (send a reference to large data instead)`);
  return text;
}

function headers(value: Readonly<Record<string, string>>, refuse: Refuse): string {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return refuse('headers', 'must be an object of strings');
  for (const [key, header] of Object.entries(value)) {
    if (typeof header !== 'string') refuse(`headers[${JSON.stringify(key)}]`, `must be a string, not ${typeof header}`);
  }
  return json('headers', value, headerBytes, refuse);
}

function delay(event: OutgoingEvent, refuse: Refuse): string | null {
  if (event.delay === undefined) return null;
  if (event.runAt !== undefined) refuse('delay', 'and runAt were both given; give one');
  return interval(duration('delay', event.delay, refuse));
}

function duration(path: string, value: unknown, refuse: Refuse): number {
  const milliseconds = parseDuration(value);
  if (milliseconds === undefined) return refuse(path, `${shown(value)} is no duration; ${durationRemedy}`);
  if (milliseconds > longestMs) return refuse(path, 'is longer than 10 years');
  return milliseconds;
}

function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 80));
  return typeof value === 'number' ? `${value}` : `a value of type ${typeof value}`;
}

function runAt(event: OutgoingEvent, refuse: Refuse): string | null {
  if (event.runAt === undefined) return null;
  if (!(event.runAt instanceof Date) || Number.isNaN(event.runAt.getTime()))
    return refuse('runAt', 'must be a valid Date');
  if (event.runAt.getTime() - Date.now() > longestMs) return refuse('runAt', 'is more than 10 years away');
  // A past instant means now; long past ones have years that Postgres would read differently.
  return new Date(Math.max(event.runAt.getTime(), 0)).toISOString();
}

type UniqueColumns = Pick<EventRow, 'uniqueBy' | 'uniqueFor'>;

function unique(value: unknown, uniqueForMs: number, refuse: Refuse): UniqueColumns {
  if (value === undefined) return { uniqueBy: null, uniqueFor: null };
  if (value === true) return { uniqueBy: 'p', uniqueFor: interval(uniqueForMs) };
  if (typeof value === 'string') return uniqueKey('unique', value, uniqueForMs, refuse);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return refuse('unique', uniqueShape);
  const { key, for: lifetime, ...unknown } = value as Record<string, unknown>;
  const [other] = Object.keys(unknown);
  if (other !== undefined) refuse('unique', `has ${JSON.stringify(other)}; ${uniqueShape}`);
  if (typeof key !== 'string') return refuse('unique.key', `must be a string, not ${typeof key}`);
  if (lifetime === undefined) return uniqueKey('unique.key', key, uniqueForMs, refuse);
  const milliseconds = duration('unique.for', lifetime, refuse);
  if (milliseconds < 1) refuse('unique.for', 'is shorter than a millisecond');
  return uniqueKey('unique.key', key, milliseconds, refuse);
}

const uniqueShape = "must be true (the same payload), a key, or { key, for: '1h' }";

function uniqueKey(path: string, key: string, milliseconds: number, refuse: Refuse): UniqueColumns {
  return { uniqueBy: `k${textAsGiven(path, key, keyLength, refuse)}`, uniqueFor: interval(milliseconds) };
}
