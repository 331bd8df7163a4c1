import type { DurableOverview, Overview } from '../../index.js';
import { pausesTable } from './pauses.js';
import { at, away, columns, paragraphs, upTo } from './text.js';

export function overviewText(overview: Overview): string {
  const { at: now, queue, scheduled, durables, workers, pauses } = overview;
  return paragraphs(
    [
      at(now),
      `relay      ${upTo(queue.waiting)} waiting${oldest(queue, now)}`,
      `scheduled  ${upTo(scheduled.waiting)} for later${scheduled.next === null ? '' : `, the next due ${away(scheduled.next, now)}`}`,
    ].join('\n'),
    durables.length === 0 ? 'no durable is registered' : durablesTable(durables, now),
    workers.length === 0 ? 'NO WORKER LIVES: nothing is relayed and nothing handled' : workersTable(workers, now),
    pausesTable(pauses),
  );
}

/** What is due within the day is in the queue as well; without a word it would look like a relay that is behind. */
function oldest({ waiting, oldest: since }: Overview['queue'], now: Date): string {
  if (since !== null) return `, the oldest due ${away(since, now)}`;
  return waiting === 0 ? '' : ', none due yet';
}

function durablesTable(durables: readonly DurableOverview[], now: Date): string {
  const head = [
    'DURABLE',
    'PENDING',
    'RUNNING',
    'RETRYABLE',
    'DISCARDED',
    'DONE/S',
    'OLDEST DUE',
    'HANDLED BY A WORKER',
    '',
  ];
  return columns(
    head,
    durables.map(({ durable, counts, perSecond, oldest, seenAt, retired, paused }) => [
      durable,
      upTo(counts.pending),
      upTo(counts.running),
      upTo(counts.retryable),
      upTo(counts.discarded),
      perSecond.toFixed(perSecond < 10 ? 1 : 0),
      away(oldest.pending ?? oldest.retryable, now),
      seenAt === null ? 'never' : away(seenAt, now),
      retired ? 'RETIRED' : paused ? 'PAUSED' : '',
    ]),
  );
}

function workersTable(workers: Overview['workers'], now: Date): string {
  return columns(
    ['WORKER', 'PROCESS', 'RUNNING', 'SEEN'],
    workers.map(({ number, app, running, seenAt }) => [`${number}`, app, `${running}`, away(seenAt, now)]),
  );
}
