import type { EventFacts } from '../tables/explain.table.js';
import { DatabaseClock } from './database-clock.js';
import type { Scene } from './explain-standing.js';
import type { Finding } from './explanation.js';
import { firstLine } from './wording.js';

export interface ExplainedEvent {
  readonly event: EventFacts;
  readonly findings: readonly Finding[];
}

type Line = readonly [name: string, label: string, text: string];

/** A block for each event: its head, then the relay and each durable, in columns. */
export function block(explained: readonly ExplainedEvent[], scene: Scene): string {
  const clock = new DatabaseClock(scene.now_ms, scene.zone);
  const blocks = explained.map(
    ({ event, findings }) => `${head(event, clock)}\n${columns(lines(event, findings, clock))}\n`,
  );
  return `${blocks.join('\n')}\n(${clock.now}, by the database's clock)\n`;
}

function head({ type, id, subject, tenant_id, headers, created_ms, place }: EventFacts, clock: DatabaseClock): string {
  const trace = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(headers?.['traceparent'] ?? '')?.[1];
  return [
    type,
    id,
    ...(subject === null ? [] : [`subject ${firstLine(subject)}`]),
    ...(tenant_id === null ? [] : [`tenant ${firstLine(tenant_id)}`]),
    `published ${clock.when(created_ms)}`,
    ...(trace === undefined ? [] : [`trace ${trace}`]),
    ...(place === 'letter' ? ['forgotten, but for its dead letter'] : []),
  ].join('  ');
}

function lines(event: EventFacts, findings: readonly Finding[], clock: DatabaseClock): Line[] {
  const elsewhere = event.cancelled_ms !== null || event.place === 'letter';
  const onTheWay = findings.some(({ durable, reason }) => durable === null && onItsWay.has(reason));
  return [...(elsewhere || onTheWay ? [] : [forwarded(event, clock)]), ...findings.map(line)];
}

/** Leaving the queue is not written down; what was handled first was forwarded before. */
function forwarded({ durables }: EventFacts, clock: DatabaseClock): Line {
  const begun = durables.flatMap(({ mark }) => (mark && mark.verdict !== 'c' ? [mark.started_ms] : []));
  return ['relay', 'FORWARDED', begun.length === 0 ? '' : `before ${clock.time(Math.min(...begun))}`];
}

const onItsWay: ReadonlySet<string> = new Set(['not-due', 'relay-behind', 'relay-stopped', 'forwarding-fails']);

function line({ durable, reason, state, text, next }: Finding): Line {
  const said = next === null ? text : `${text}   → ${next}`;
  if (durable === null)
    return [reason === 'cancelled' || reason === 'no-subscriber' ? '-' : 'relay', upper(reason), said];
  return [durable, upper(state ?? reason), said];
}

function upper(word: string): string {
  return word.replaceAll('-', ' ').toUpperCase();
}

function columns(all: readonly Line[]): string {
  const width = (column: 0 | 1): number => Math.max(...all.map((line) => line[column].length));
  const [first, second] = [width(0), width(1)];
  return all
    .map(([name, label, text]) => `  ${name.padEnd(first)}  ${label.padEnd(second)}  ${text}`.trimEnd())
    .join('\n');
}
