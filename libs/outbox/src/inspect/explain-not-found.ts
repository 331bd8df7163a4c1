import { DatabaseClock } from './database-clock.js';
import type { Scene } from './explain-standing.js';
import type { ExplainQuery, Explanation, Finding } from './explanation.js';
import { firstLine, span } from './wording.js';

/** Nothing of it is in the database. `ids`: what the query led to, if anything. */
export function notFound(query: ExplainQuery, ids: readonly string[], scene: Scene, retentionMs: number): Explanation {
  const [id = null] = ids;
  const text = reasonOf(query, id, scene, retentionMs);
  const finding: Finding = { eventId: id, durable: null, reason: 'not-found', state: null, text, next: null };
  return { events: [], findings: [finding], text: `NOT FOUND  ${text}\n` };
}

function reasonOf(
  { id, subject, unique }: ExplainQuery,
  found: string | null,
  scene: Scene,
  retentionMs: number,
): string {
  const kept = `events are kept for ${span(retentionMs)}`;
  if (subject !== undefined)
    return `no event of subject '${firstLine(subject)}': none was committed, or all are forgotten (${kept})`;
  if (unique !== undefined)
    return found === null
      ? `no event stands under the key '${firstLine(unique)}': none was committed, it was cancelled, or its time is over`
      : `the event ${found} that stands under the key '${firstLine(unique)}' is forgotten (${kept})`;
  if (found === null)
    return `'${firstLine(id ?? '')}' is no id of an event, which is a UUID; look for it as a subject or a unique key`;
  return ofId(found, scene, retentionMs, kept);
}

/** Ids of version 7 bear the time at which the event was due, so that one of the two is likelier. */
function ofId(id: string, scene: Scene, retentionMs: number, kept: string): string {
  if (id[14] !== '7') return `${id} was not made by this outbox, whose ids are UUIDs of version 7`;
  const dueMs = timeOf(id);
  const due = `its id is of ${new DatabaseClock(scene.now_ms, scene.zone).when(dueMs)}`;
  if (scene.now_ms - dueMs > retentionMs) return `${due}: it is forgotten, if it was ever committed (${kept})`;
  return `${due}: the transaction that published it was rolled back or has not committed yet (${kept}), or this is another database`;
}

/** Milliseconds since 1970 that an id of version 7 begins with. */
export function timeOf(id: string): number {
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16);
}
