import type { ActedRow } from '../tables/actions.table.js';
import { relayName } from '../tables/queue.table.js';
import type { ActionOutcome, RowOutcome } from './acting.js';

type Words = readonly [ActionOutcome, string | null];

const outcome = (row: ActedRow, [outcome, detail]: Words): RowOutcome => ({
  eventId: row.event_id,
  durable: row.durable,
  outcome,
  detail,
});

/** What became of a retry, in words. */
export function actedOn(row: ActedRow): RowOutcome {
  if (row.done) return outcome(row, ['done', null]);
  if (row.letter === 'open') return outcome(row, openLetter(row));
  if (row.waits) return outcome(row, waiting(row));
  if (row.letter !== null) return outcome(row, ['unchanged', `its dead letter was closed before: ${row.letter}`]);
  if (row.verdict !== null) return outcome(row, ['unchanged', ended(row.verdict)]);
  if (row.here && row.state !== null) return outcome(row, ['unchanged', 'no attempt at it has failed']);
  return outcome(row, ['not-found', row.here ? noDurable(row) : 'there is no such event (any more)']);
}

/** What became of a letter that was to be closed. */
export function discarded(row: ActedRow): RowOutcome {
  if (row.done) return outcome(row, ['done', null]);
  if (row.letter === null) return outcome(row, ['not-found', 'there is no dead letter of it']);
  return outcome(
    row,
    row.letter === 'open'
      ? ['unchanged', 'somebody else was first']
      : ['unchanged', `it was closed before: ${row.letter}`],
  );
}

/** What became of an event that was sent to one durable. */
export function sent(row: ActedRow): RowOutcome {
  if (row.done) return outcome(row, ['done', null]);
  if (!row.here) return outcome(row, ['not-found', 'there is no such event (any more), or it is not due yet']);
  if (row.state === 'retired') return outcome(row, ['failed', retired(row)]);
  if (!row.covers) return outcome(row, ['failed', `'${row.durable}' does not get events of this type`]);
  if (row.waits) return outcome(row, waiting(row));
  if (row.verdict !== null)
    return outcome(row, ['unchanged', `${ended(row.verdict)}; with --force (force: true) its handler runs once more`]);
  return outcome(row, ['unchanged', 'somebody else was first']);
}

function openLetter(row: ActedRow): Words {
  if (!row.here)
    return ['failed', 'its event has been forgotten, and nothing runs without it; discard closes the letter'];
  if (row.durable === relayName) return ['unchanged', 'somebody else was first'];
  if (row.state === null) return ['failed', noDurable(row)];
  if (row.state === 'retired') return ['failed', retired(row)];
  return ['unchanged', 'somebody else was first'];
}

function waiting({ lease }: ActedRow): Words {
  if (lease === null) return ['unchanged', 'it is due already, and will run'];
  return ['unchanged', lease < 0 ? `it is paused (pause ${-lease}), and runs when that ends` : 'a worker has it now'];
}

function ended(verdict: string): string {
  if (verdict === 'd') return 'it was handled';
  return verdict === 'c' ? 'it was cancelled' : 'it was given up, and its dead letter closed';
}

function noDurable({ durable }: ActedRow): string {
  return `there is no durable '${durable}' (any more)`;
}

function retired({ durable }: ActedRow): string {
  return `durable '${durable}' is retired; Durables.revive makes it active again`;
}
