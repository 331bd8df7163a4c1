import type { ManyReport, RowOutcome } from '../../index.js';
import { columns, line, paragraphs } from './text.js';

/** How an action is called. */
export interface Verb {
  /** `retry`. */
  readonly now: string;
  /** `retried`. */
  readonly past: string;
}

export const retry: Verb = { now: 'retry', past: 'retried' };
export const discard: Verb = { now: 'discard', past: 'discarded' };
export const send: Verb = { now: 'send', past: 'sent' };

/** More rows than anybody reads. */
const shown = 50;

export function reportText(report: ManyReport, { now, past }: Verb): string {
  const { dryRun, matched, done, unchanged, failed, rows } = report;
  if (matched === 0) return 'nothing matches';
  const rest = [unchanged > 0 ? `${n(unchanged)} unchanged` : '', failed > 0 ? `${n(failed)} failed` : ''];
  const counts = rest.filter((part) => part !== '').join(', ');
  const told = dryRun ? rows : rows.filter(({ outcome }) => outcome !== 'done');
  return paragraphs(
    `${dryRun ? `would ${now}` : past} ${n(done)} of ${n(matched)}${counts === '' ? '' : `; ${counts}`}`,
    told.length === 0 ? '' : outcomesTable(told.slice(0, shown), dryRun ? `would ${now}` : past),
    told.length > shown ? `and ${n(told.length - shown)} more; --json has up to 10,000` : '',
  );
}

function outcomesTable(rows: readonly RowOutcome[], done: string): string {
  return columns(
    ['EVENT', 'DURABLE', 'OUTCOME', 'WHY'],
    rows.map(({ eventId, durable, outcome, detail }) => [
      eventId,
      durable,
      outcome === 'done' ? done : outcome,
      line(detail, 120),
    ]),
  );
}

export function outcomeText({ eventId, durable, outcome, detail }: RowOutcome, { now, past }: Verb): string {
  if (outcome === 'done') return `${past}: ${eventId} for ${durable}`;
  return `did not ${now} ${eventId} for ${durable} (${outcome})${detail === null ? '' : `: ${line(detail, 400)}`}`;
}

function n(count: number): string {
  return count.toLocaleString('en');
}
