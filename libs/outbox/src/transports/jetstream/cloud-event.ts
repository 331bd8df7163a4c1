import { headers, Match, type MsgHdrs } from 'nats';
import type { OutboxEvent } from '../../core/envelope.js';
import type { OutgoingRow } from '../../core/transport.js';

/** Names that are ours or the server's: what a publisher gave under them stays in the database. */
const reserved = /^(ce-|nats-|content-type$)/i;
const json = 'application/json';
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** What the protocol takes as it is; of the rest some ends the connection, some is changed on the way. */
const plainName = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/;
const plainValue = /^(?! )[\x20-\x7e]*(?<! )$/;

/** Which outbox a message comes from, and under which name it is known outside. */
export interface Origin {
  readonly installation: string;
  readonly source: string;
}

/**
 * CloudEvents 1.0 in binary mode, as the NATS protocol binding has it: attributes as `ce-` headers, the payload as it is.
 * Extensions: `tenantid`, and `outboxid`, which tells one outbox of a shared stream from another. Headers of the
 * publisher (`traceparent`) travel beside them under their own names; when one of them cannot, all of them are in
 * `outboxheaders` as well, as base64 of their JSON: a header must never keep an event from being delivered.
 */
export function messageHeaders(event: OutgoingRow, origin: Origin): MsgHdrs {
  const all = headers();
  const own = Object.entries(event.headers);
  const plain = own.filter(([name, value]) => plainName.test(name) && plainValue.test(value) && !reserved.test(name));
  for (const [name, value] of plain) all.set(name, value);
  const attributes: Record<string, string | null> = {
    specversion: '1.0',
    id: event.id,
    source: origin.source,
    type: event.type,
    time: event.occurredAt.toISOString(),
    subject: event.subject,
    datacontenttype: json,
    tenantid: event.tenantId,
    outboxid: origin.installation,
    outboxheaders: plain.length === own.length ? null : Buffer.from(JSON.stringify(event.headers)).toString('base64'),
  };
  for (const [name, value] of Object.entries(attributes)) if (value !== null) all.set(`ce-${name}`, encoded(value));
  // The binding has the type of the data among the attributes; clients that know HTTP look for it here.
  all.set('content-type', json);
  return all;
}

/** The event's id, when the message names one that can be an event of an outbox. */
export function eventIdOf(all: MsgHdrs | undefined): string | undefined {
  const id = all?.get('ce-id', Match.IgnoreCase).toLowerCase();
  return id && uuid.test(id) ? id : undefined;
}

export function installationOf(all: MsgHdrs | undefined): string | undefined {
  return all?.get('ce-outboxid', Match.IgnoreCase) || undefined;
}

/** The event as the message tells it. Throws when the payload is no JSON, or an attribute cannot be what it says. */
export function eventOf(id: string, type: string, all: MsgHdrs | undefined, data: Uint8Array): OutboxEvent {
  const attribute = (name: string): string | null => decoded(all?.get(`ce-${name}`, Match.IgnoreCase) ?? '') || null;
  return {
    id,
    type,
    payload: JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(data)),
    tenantId: attribute('tenantid'),
    subject: attribute('subject'),
    headers: headersOf(all),
    occurredAt: timeOf(attribute('time'), id),
  };
}

function headersOf(all: MsgHdrs | undefined): Record<string, string> {
  const whole = all?.get('ce-outboxheaders', Match.IgnoreCase);
  if (whole) return asHeaders(JSON.parse(Buffer.from(whole, 'base64').toString('utf8')));
  const names = (all?.keys() ?? []).filter((name) => !reserved.test(name));
  return Object.fromEntries(names.map((name) => [name, all?.get(name) ?? '']));
}

/** Whoever may publish may write any JSON there. */
function asHeaders(whole: unknown): Record<string, string> {
  if (typeof whole === 'object' && whole !== null && !Array.isArray(whole)) {
    const entries = Object.entries(whole);
    if (entries.every(([, value]) => typeof value === 'string')) return Object.fromEntries(entries);
  }
  throw new Error('its ce-outboxheaders are no headers');
}

/** An event need not say when it happened; its id does. */
function timeOf(time: string | null, id: string): Date {
  const at = new Date(time ?? Number.parseInt(id.replace('-', '').slice(0, 12), 16));
  const year = at.getUTCFullYear();
  // Beyond these ISO 8601 has signs and six digits, which Postgres reads otherwise or not at all.
  if (year >= 1 && year <= 9_999) return at;
  throw new Error(`its ce-time ${JSON.stringify(time)} is no time`);
}

/** As the HTTP binding says, which that of NATS follows: everything but printable ASCII, and blank, quote and percent. */
function encoded(value: string): string {
  return value.replaceAll(/[^\x21-\x7e]|["%]/gu, (character) => encodeURIComponent(character));
}

/** Clients of older versions of the binding quote a value in place of encoding it. Throws where the bytes are no UTF-8. */
function decoded(value: string): string {
  const quoted = /^"(.*)"$/s.exec(value)?.[1];
  return decodeURIComponent(quoted === undefined ? value : quoted.replaceAll(/\\(.)/gs, '$1'));
}
