import { relayName } from './queue.table.js';
import { inSchema, statement } from './wire/statement.js';

export interface DeadLetterRow {
  readonly event_id: string;
  readonly durable: string;
  readonly tenant_id: string | null;
  readonly type: string;
  readonly subject: string | null;
  readonly payload: unknown;
  readonly headers: Record<string, string> | null;
  readonly error: string | null;
  readonly attempts: number;
  readonly history: readonly { n: number; error: string; at: string }[] | null;
  readonly dead_ms: number;
}

/** `dead_letters`: the whole event again, so that it can be read after its day was forgotten. */
export class DeadLettersTable {
  readonly list;
  readonly retry;
  readonly forwardAgain;
  readonly resolve;

  constructor(schema: string) {
    this.list = statement<DeadLetterRow>('dead_list', inSchema(schema, listSql));
    this.retry = statement<{ id: string }>('dead_retry', inSchema(schema, retrySql));
    this.forwardAgain = statement<{ id: string }>('dead_forward_again', inSchema(schema, forwardAgainSql));
    this.resolve = statement<{ id: string }>('dead_resolve', inSchema(schema, resolveSql));
  }
}

const columns = `event_id, durable, tenant_id, type, subject, payload, headers, error, attempts, history,
  floor(extract(epoch FROM dead_at) * 1000)::bigint AS dead_ms`;

/** Open ones, oldest first. Parameters: durable (null: all), tenant (null: all), after event id, after durable (null: from the start), limit. */
const listSql = `
SELECT ${columns} FROM outbox.dead_letters d
WHERE resolved_at IS NULL AND ($1::text IS NULL OR durable = $1::text OR durable IN (SELECT unnest(n.formerly) FROM outbox.durables n WHERE n.name = $1::text)) AND ($2::text IS NULL OR tenant_id = $2::text)
  AND ($3::uuid IS NULL OR (dead_at, event_id, durable) > (SELECT a.dead_at, a.event_id, a.durable FROM outbox.dead_letters a WHERE a.event_id = $3::uuid AND a.durable = $4::text))
ORDER BY dead_at, event_id, durable LIMIT $5::int`;

/**
 * Parameters: event id, durable. The letter decides between two operators, whatever they do with it, so it comes before
 * the verdict. Not without a verdict to undo, and only while the event row is there and the durable is active, because nothing runs without them: a
 * letter must not be closed when nothing is delivered again.
 */
const retrySql = `
WITH l AS (UPDATE outbox.dead_letters dl SET resolved_at = clock_timestamp(), resolution = 'retried' FROM outbox.durables n
      WHERE dl.event_id = $1::uuid AND dl.durable = $2::text AND dl.resolved_at IS NULL AND (n.name = dl.durable OR dl.durable = ANY (n.formerly)) AND n.state = 'active'
        AND EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket($1::uuid) AND h.event_id = $1::uuid AND h.durable = n.id AND h.verdict = 'x')
        AND EXISTS (SELECT 1 FROM outbox.events e WHERE e.bucket = outbox.bucket($1::uuid) AND e.id = $1::uuid) RETURNING n.id AS durable),
m AS (DELETE FROM outbox.handled h USING l WHERE h.bucket = outbox.bucket($1::uuid) AND h.event_id = $1::uuid AND h.durable = l.durable AND h.verdict = 'x'
      RETURNING h.event_id, h.durable)
INSERT INTO outbox.deliveries (event_id, durable) SELECT event_id, durable FROM m ON CONFLICT DO NOTHING RETURNING event_id AS id`;

/** The same for a letter of the relay, which has no verdict: the event is queued again. Parameters: event id. */
const forwardAgainSql = `
WITH dl AS (UPDATE outbox.dead_letters SET resolved_at = clock_timestamp(), resolution = 'retried'
      WHERE event_id = $1::uuid AND durable = '${relayName}' AND resolved_at IS NULL
        AND EXISTS (SELECT 1 FROM outbox.events e WHERE e.bucket = outbox.bucket($1::uuid) AND e.id = $1::uuid) RETURNING event_id)
INSERT INTO outbox.queue (event_id) SELECT event_id FROM dl RETURNING event_id AS id`;

/** Parameters: event id, durable, resolution. */
const resolveSql = `
UPDATE outbox.dead_letters SET resolved_at = clock_timestamp(), resolution = $3::text
WHERE event_id = $1::uuid AND durable = $2::text AND resolved_at IS NULL RETURNING event_id AS id`;
