import type { HealthReport } from '../../index.js';
import { span } from '../../inspect/wording.js';
import { columns, line, paragraphs, plain, upTo } from './text.js';

export function healthText(report: HealthReport): string {
  const { status, problems, relay, deliveries, deadLetters, jobs } = report;
  const figures = [
    relay &&
      `relay         ${upTo(relay.waiting)} due${relay.lagMs === null ? '' : `, the oldest for ${span(relay.lagMs)}`}`,
    deliveries &&
      `deliveries    ${upTo(deliveries.waiting)} due${deliveries.oldestMs === null ? '' : `, the oldest for ${span(deliveries.oldestMs)}`}`,
    deadLetters && `dead letters  ${upTo(deadLetters.open)} open`,
    jobs && `jobs          ${jobs.running.length} running`,
  ];
  return paragraphs(
    status.toUpperCase(),
    problems.map((problem) => `${problem.status.toUpperCase()} ${problem.code}: ${plain(problem.message)}`).join('\n'),
    figures.filter((figure) => figure !== null).join('\n'),
    deliveries && deliveries.durables.length > 0 ? waitingTable(deliveries.durables) : '',
  );
}

function waitingTable(durables: NonNullable<HealthReport['deliveries']>['durables']): string {
  return columns(
    ['DURABLE', 'DUE', 'OLDEST FOR', 'ITS WORKER SEEN'],
    durables.map(({ durable, waiting, oldestMs, unseenMs }) => [
      ...[line(durable), upTo(waiting), span(oldestMs), unseenMs === null ? 'never' : `${span(unseenMs)} ago`],
    ]),
  );
}

/** What the role could not read, so that green says nothing of it. */
export function unread({ relay, deliveries, deadLetters, jobs }: HealthReport): string[] {
  return Object.entries({ relay, deliveries, 'dead letters': deadLetters, jobs })
    .filter(([, part]) => part === null)
    .map(([name]) => name);
}
