import { relayName } from './queue.table.js';
import { queuedOf } from './where-queued.js';
import { inSchema, statement } from './wire/statement.js';

/** What has become of an event that somebody waits for, in one snapshot. */
export interface WaitRow {
  readonly id: string;
  /** Milliseconds since the time that its id bears; below zero when that is to come. */
  readonly age_ms: number;
  readonly found: boolean;
  /** In `queue` or in `scheduled`. */
  readonly queued: boolean;
  readonly ended: readonly {
    readonly durable: string | null;
    readonly verdict: 'd' | 'x' | 'c';
    readonly error: string | null;
  }[];
  /** Durables that are to get it, or have a row of it, and have no verdict; how far they are tells whether something happened. */
  readonly open: readonly { readonly durable: string; readonly attempt: number; readonly error: string | null }[];
  /** Why it was never forwarded; its dead letter. */
  readonly refused: string | null;
}

export class WaitsTable {
  /** Parameters: ids. One row an id. */
  readonly look;

  constructor(schema: string) {
    this.look = statement<WaitRow>('waits_look', inSchema(schema, lookSql));
  }
}

/** Under a mark of durable 0 nobody is to get it any more; it stands for the event alone when no durable has one. */
const endedSql = `(
    SELECT json_agg(json_build_object('durable', n.name, 'verdict', h.verdict, 'error', l.error) ORDER BY n.name) AS all, bool_or(h.durable = 0) AS cancelled
    FROM outbox.handled h LEFT JOIN outbox.durables n ON n.id = h.durable
    LEFT JOIN outbox.dead_letters l ON h.verdict = 'x' AND l.event_id = i.id AND (l.durable = n.name OR l.durable = ANY (n.formerly))
    WHERE h.bucket = outbox.bucket(i.id) AND h.event_id = i.id)`;

const openSql = `(
    SELECT json_agg(json_build_object('durable', n.name, 'attempt', coalesce(x.attempt, 0), 'error', split_part(x.last_error, E'\\n', 1)) ORDER BY n.name) AS all
    FROM outbox.durables n LEFT JOIN outbox.deliveries x ON x.event_id = i.id AND x.durable = n.id
    WHERE (x.event_id IS NOT NULL OR n.state = 'active' AND EXISTS (SELECT 1 FROM outbox.durable_types y
        WHERE y.durable = n.id AND y.ended_at IS NULL AND e.type LIKE y.matcher AND e.created_at >= y.since))
      AND NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(i.id) AND h.event_id = i.id AND h.durable IN (0, n.id)))`;

const lookSql = `
SELECT i.id, (floor(extract(epoch FROM statement_timestamp()) * 1000) - ('x' || substr(replace(i.id::text, '-', ''), 1, 12))::bit(48)::bigint)::bigint AS age_ms,
  e.type IS NOT NULL AS found, (q.due_at IS NOT NULL OR coalesce(e.scheduled, false)) AND NOT coalesce(d.cancelled, false) AS queued,
  coalesce(d.all, '[]') AS ended, coalesce(o.all, '[]') AS open,
  (SELECT coalesce(l.error, '') FROM outbox.dead_letters l WHERE l.event_id = i.id AND l.durable = '${relayName}' AND l.resolution IS DISTINCT FROM 'retried') AS refused
FROM unnest($1::uuid[]) i(id)
LEFT JOIN LATERAL (SELECT v.type, v.created_at, false AS scheduled FROM outbox.events v WHERE v.bucket = outbox.bucket(i.id) AND v.id = i.id
    UNION ALL SELECT s.type, s.created_at, true FROM outbox.scheduled s WHERE s.id = i.id LIMIT 1) e ON true
LEFT JOIN LATERAL ${queuedOf('i.id')} q ON true
LEFT JOIN LATERAL ${endedSql} d ON true
LEFT JOIN LATERAL ${openSql} o ON true`;
