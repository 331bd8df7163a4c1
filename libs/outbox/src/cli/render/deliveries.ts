import type { AttemptInfo, DeadLetter, DeliveryInfo, DeliveryPage, EventDetails, EventInfo } from '../../index.js';
import { at, away, columns, line, paragraphs, plain } from './text.js';

export function pageText({ deliveries, next }: DeliveryPage, now: Date): string {
  if (deliveries.length === 0) return 'nothing matches';
  return paragraphs(
    columns(
      ['EVENT', 'DURABLE', 'STATE', 'TYPE', 'TENANT', 'SUBJECT', 'ATTEMPTS', 'WHEN', 'ERROR'],
      deliveries.map((delivery) => [
        delivery.eventId,
        delivery.durable ?? '(all)',
        stateWords(delivery),
        delivery.type,
        delivery.tenantId ?? '',
        delivery.subject ?? '',
        `${delivery.attempts}`,
        away(delivery.since ?? delivery.dueAt, now),
        line(delivery.error),
      ]),
    ),
    next === null ? '' : `there are more: the same again with --cursor ${next}`,
  );
}

function stateWords({ state, pause }: DeliveryInfo): string {
  return pause === null ? state : `${state} (paused)`;
}

export function lettersText(letters: readonly DeadLetter[], more: string | null, now: Date): string {
  if (letters.length === 0) return 'no dead letter is open';
  return paragraphs(
    columns(
      ['EVENT', 'DURABLE', 'TYPE', 'TENANT', 'ATTEMPTS', 'DEAD', 'ERROR'],
      letters.map(({ eventId, durable, type, tenantId, attempts, deadAt, error }) => [
        ...[eventId, durable, type, tenantId ?? '', `${attempts}`, away(deadAt, now), line(error)],
      ]),
    ),
    more === null ? '' : `there are more: the same again with --cursor ${more}`,
  );
}

/** Everything of one event. */
export function eventText({ event, relay, deliveries, attempts }: EventDetails, now: Date): string {
  return paragraphs(
    [
      eventLine(event),
      `published  ${at(event.publishedAt)} (${away(event.publishedAt, now)})`,
      `relay      ${relay.state}${relay.dueAt === null ? '' : `, due ${away(relay.dueAt, now)}`}${relay.tries > 0 ? `, ${relay.tries} tries` : ''}${relay.error === null ? '' : `: ${line(relay.error)}`}`,
      `payload    ${plain(JSON.stringify(event.payload))}`,
      `headers    ${plain(JSON.stringify(event.headers))}`,
    ].join('\n'),
    deliveries.length === 0 ? 'no durable has a delivery of it' : deliveriesTable(deliveries, now),
    ...attempts.map(attemptText),
  );
}

function eventLine({ type, id, subject, tenantId }: EventInfo): string {
  const tenant = tenantId === null ? '' : `  tenant ${line(tenantId)}`;
  return `${type}  ${id}${subject === null ? '' : `  subject ${line(subject)}`}${tenant}`;
}

function deliveriesTable(deliveries: readonly DeliveryInfo[], now: Date): string {
  return columns(
    ['DURABLE', 'STATE', 'ATTEMPTS', 'WHEN', 'WORKER', 'ERROR'],
    deliveries.map((delivery) => [
      delivery.durable ?? '(all)',
      stateWords(delivery),
      `${delivery.attempts}`,
      away(delivery.since ?? delivery.dueAt, now),
      workerWords(delivery.worker),
      line(delivery.error),
    ]),
  );
}

/** Of a process that is gone only its number is left. */
function workerWords(worker: string | null): string {
  return worker !== null && /^\d+$/.test(worker) ? `worker ${worker}` : line(worker);
}

/** With the whole stack: this is where one looks for it. */
function attemptText({ durable, n, error, worker, failedAt, nextAt }: AttemptInfo): string {
  const next = nextAt === null ? '' : `, next at ${at(nextAt)}`;
  return `${durable}, attempt ${n}, ${at(failedAt)}${worker === null ? '' : `, on ${workerWords(worker)}`}${next}\n${plain(error).replaceAll(/^/gm, '  ')}`;
}
