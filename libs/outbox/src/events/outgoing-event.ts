import { durationRemedy, parseDuration } from '../core/duration.js';
import { InvalidEventError } from '../outbox.errors.js';
import { interval } from '../tables/wire/statement.js';
import type { OutgoingEvent } from './event-publisher.js';
import { typeOf } from './event-ref.js';
import { eventTypeProblem } from './event-type.js';
import { jsonProblem, textProblem } from './json-problem.js';

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
}

const headerBytes = 16 * 1024;
const nameLength = 255;
/** Beyond this a delay is almost always a wrong unit. */
const longestDelayMs = 10 * 365.25 * 86_400_000;

/** Checks one event and turns it into its columns. Throws `InvalidEventError`, naming the path of the value at fault. */
export function eventRow(event: OutgoingEvent, tenant: string | null, maxEventBytes: number): EventRow {
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
    payload: json('payload', event.payload, maxEventBytes, refuse),
    headers: event.headers === undefined ? null : headers(event.headers, refuse),
    delay: delay(event, refuse),
    runAt: runAt(event, refuse),
  };
}

type Refuse = (path: string, problem: string) => never;

function name(what: string, value: unknown, refuse: Refuse): string | null {
  if (value === null) return null;
  if (typeof value !== 'string') return refuse(what, `must be a string, not ${typeof value}`);
  if (value === '') return refuse(what, 'is an empty string; leave it out instead');
  if (value.length > nameLength)
    return refuse(what, `has ${value.length} characters; at most ${nameLength} are allowed`);
  const problem = textProblem(value, what);
  return problem ? refuse(problem.path, problem.problem) : value;
}

function json(path: string, value: unknown, limit: number, refuse: Refuse): string {
  const problem = jsonProblem(value, path);
  if (problem) refuse(problem.path, problem.problem);
  const text = JSON.stringify(value);
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
  const milliseconds = parseDuration(event.delay);
  if (milliseconds === undefined)
    return refuse('delay', `${JSON.stringify(event.delay)} is no duration; ${durationRemedy}`);
  if (milliseconds > longestDelayMs) return refuse('delay', 'is longer than 10 years');
  return interval(milliseconds);
}

function runAt(event: OutgoingEvent, refuse: Refuse): string | null {
  if (event.runAt === undefined) return null;
  if (!(event.runAt instanceof Date) || Number.isNaN(event.runAt.getTime()))
    return refuse('runAt', 'must be a valid Date');
  if (event.runAt.getTime() - Date.now() > longestDelayMs) return refuse('runAt', 'is more than 10 years away');
  // A past instant means now; long past ones have years that Postgres would read differently.
  return new Date(Math.max(event.runAt.getTime(), 0)).toISOString();
}
