/**
 * Pieces of the inspector's statements; the states are those of the view `outbox.deliveries_state`, and a property test
 * holds the two together. What looks something up for each of many rows is a scalar subquery or a LATERAL behind
 * OFFSET 0, which the planner cannot turn into a join: it would read all marks to find those of a page.
 */

export const milliseconds = (moment: string): string => `floor(extract(epoch FROM ${moment}) * 1000)::bigint`;

/** Nobody has a verdict, the durable's own or the one for all. */
export const open = (id: string, durable: string): string =>
  `(SELECT true FROM outbox.handled h WHERE h.bucket = outbox.bucket(${id}) AND h.event_id = ${id} AND h.durable IN (0, ${durable}) LIMIT 1) IS NULL`;

export const rowless = (id: string, durable: string): string =>
  `(SELECT true FROM outbox.deliveries x WHERE x.event_id = ${id} AND x.durable = ${durable} LIMIT 1) IS NULL`;

export const meant = (durable: string, event: string, when = 'true'): string =>
  `EXISTS (SELECT 1 FROM outbox.durable_types y WHERE y.durable = ${durable} AND y.ended_at IS NULL AND ${event}.type LIKE y.matcher AND ${event}.created_at >= y.since AND ${when})`;

/** What workers said that they run; of each (event, durable) once a worker. */
export const runningRows = `(SELECT DISTINCT ON (event_id, durable, worker) * FROM outbox.deliveries_running ORDER BY event_id, durable, worker, started_at DESC)`;
export const runningMessages = `(SELECT DISTINCT ON (event_id, durable) * FROM outbox.deliveries_running ORDER BY event_id, durable, started_at DESC)`;

/** From which event on an active durable may have some without verdict and row: a broker's, or before a back-fill. */
export const unverified = `(SELECT i.id, i.name, i.verified_to, least(outbox.uuid7_floor(i.verified_to), (SELECT y.backfill_to FROM outbox.durable_types y
    WHERE y.durable = i.id AND y.ended_at IS NULL AND y.backfill_to IS NOT NULL ORDER BY y.backfill_to LIMIT 1)) AS first
  FROM outbox.durables i WHERE i.state = 'active' OFFSET 0)`;

/** Of the types of such a durable, those whose events that is true of. */
export const unverifiedType = (event: string, durable: string): string =>
  `(${event} >= outbox.uuid7_floor(${durable}.verified_to) OR ${event} > y.backfill_to)`;

/** The relay gave the event up, and it waits for an operator. */
export const refused = (id: string): string =>
  `EXISTS (SELECT 1 FROM outbox.dead_letters l WHERE l.event_id = ${id} AND l.durable = '#relay' AND l.resolution IS DISTINCT FROM 'retried')`;
