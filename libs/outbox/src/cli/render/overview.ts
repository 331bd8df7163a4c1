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
    ...workersText(workers, now),
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
    'ITS WORKER SEEN',
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

/** Workers say every five seconds that they live; `why` counts by the same. */
const goneMs = 15_000;

function workersText(workers: Overview['workers'], now: Date): string[] {
  const gone = workers.every(({ seenAt }) => now.getTime() - seenAt.getTime() >= goneMs);
  const none = 'NO WORKER LIVES: nothing is relayed and nothing handled';
  return [gone ? none : '', workers.length === 0 ? '' : workersTable(workers, now)];
}

function workersTable(workers: Overview['workers'], now: Date): string {
  return columns(
    ['WORKER', 'PROCESS', 'RUNNING', 'SEEN'],
    workers.map(({ number, app, running, seenAt }) => [`${number}`, app, `${running}`, seen(seenAt, now)]),
  );
}

/** Its row stays until another worker has swept it, which at night may be nobody. */
function seen(at: Date, now: Date): string {
  const gone = now.getTime() - at.getTime() >= goneMs;
  return `${away(at, now)}${gone ? '  GONE, OR IT HANGS' : ''}`;
}
