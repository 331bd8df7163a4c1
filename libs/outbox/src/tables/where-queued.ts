import { relayName } from './queue.table.js';

/** The moment that a v7 id carries: the due time, to the millisecond. */
export const dueOf = (id: string): string =>
  `(timestamptz 'epoch' + (('x' || substr(replace(${id}::text, '-', ''), 1, 12))::bit(48)::bigint) * interval '1 millisecond')`;

/**
 * The row of `queue` of one event. The table is indexed by due time alone, and is large when it matters: the id carries
 * the due time, what a broker refused is in an index of its own, and what an operator queued again is due at the moment
 * at which its letter was closed.
 */
export const queuedOf = (id: string): string => `(
    SELECT q.event_id, q.due_at, q.attempts, q.last_error FROM outbox.queue q WHERE q.due_at >= ${dueOf(id)} AND q.due_at < ${dueOf(id)} + interval '1 millisecond' AND q.event_id = ${id}
    UNION ALL SELECT q.event_id, q.due_at, q.attempts, q.last_error FROM outbox.queue q WHERE q.event_id = ${id} AND q.attempts > 0
    UNION ALL SELECT q.event_id, q.due_at, q.attempts, q.last_error FROM outbox.dead_letters l JOIN outbox.queue q
      ON q.due_at >= l.resolved_at - interval '1 second' AND q.due_at < l.resolved_at + interval '1 second' AND q.event_id = ${id}
      WHERE l.event_id = ${id} AND l.durable = '${relayName}' AND l.resolution = 'retried'
    LIMIT 1)`;
