import { relayName } from './queue.table.js';
import { inSchema, statement } from './wire/statement.js';

export interface LookedAtRow {
  readonly id: number;
  readonly name: string;
  readonly state: 'active' | 'retired';
  /** The id below which everything has a verdict or a row; null: nothing was looked at yet. */
  readonly cursor: string | null;
  /** It is time to look at everything once more. */
  readonly all: boolean;
}

export interface BoundRow {
  /** The id below which the queue and the open transactions have nothing any more. */
  readonly quiet: string;
  /** The id of a day ago: what is older is looked at whatever the broker says. */
  readonly overdue: string;
}

export interface ReconciledRow {
  /** Rows made. */
  readonly found: number;
  /** The last id looked at; null when there was none. */
  readonly last: string | null;
  readonly looked: number;
}

/** What a broker lost: events that have left the queue and have, for a durable that is to get them, neither verdict nor row. */
export class ReconcileTable {
  /** Parameters: how often a durable is looked at, whether all of them or those alone that a broker has served. */
  readonly claim;
  /** Parameters: how long something may be under way. */
  readonly bound;
  /** Parameters: durable, from id, to id, chunk. */
  readonly chunk;
  /** Parameters: durable, the id looked up to, whether everything was looked at. */
  readonly verified;
  /** Parameters: durable. */
  readonly unserved;
  /** Parameters: durable, a retired one. */
  readonly forgotten;
  /** No parameters. */
  readonly installation;

  constructor(schema: string) {
    this.claim = statement<LookedAtRow>('reconcile_claim', inSchema(schema, claimSql));
    this.bound = statement<BoundRow>('reconcile_bound', inSchema(schema, boundSql));
    this.chunk = statement<ReconciledRow>('reconcile_chunk', inSchema(schema, chunkSql));
    this.verified = statement('reconcile_verified', inSchema(schema, verifiedSql));
    this.unserved = statement('reconcile_unserved', inSchema(schema, unservedSql));
    this.forgotten = statement('reconcile_forgotten', inSchema(schema, forgottenSql));
    this.installation = statement<{ installation: string }>(
      'installation',
      inSchema(schema, 'SELECT installation::text FROM outbox.schema_version'),
    );
  }
}

/**
 * One worker a time looks at a durable; one that dies over it is followed by the next look. Retired ones are named until
 * they are forgotten, looked at before or not: who has started with one has made its consumer. Without a broker the look
 * at everything is the last one, a day after it is due for workers that have one.
 */
const claimSql = `
WITH d AS (SELECT id FROM outbox.durables WHERE ($2::boolean AND (state = 'active' OR verified_all_at IS NULL) OR verified_to IS NOT NULL)
      AND (looked_at IS NULL OR looked_at <= clock_timestamp() - $1::interval) ORDER BY id FOR UPDATE SKIP LOCKED)
UPDATE outbox.durables x SET looked_at = clock_timestamp() FROM d WHERE x.id = d.id
RETURNING x.id, x.name, x.state, outbox.uuid7_floor(x.verified_to)::text AS cursor,
  coalesce(x.verified_all_at < clock_timestamp() - CASE WHEN $2::boolean THEN interval '1 day' ELSE interval '2 days' END, true) AS all`;

/**
 * Ids carry due times. Below the oldest row of the queue nothing is on its way to the broker (what it refused is looked
 * for apart), and an open transaction may still commit an event of its time; other roles' transactions may be hidden,
 * and what they publish later is found by the look at everything.
 */
const boundSql = `
SELECT outbox.uuid7_floor(least(statement_timestamp(), (SELECT min(due_at) FROM outbox.queue WHERE attempts = 0), (SELECT min(due_at) FROM outbox.scheduled),
    (SELECT min(xact_start) FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL)) - $1::interval)::text AS quiet,
  outbox.uuid7_floor(statement_timestamp() - interval '1 day')::text AS overdue`;

/**
 * A row that its claim has deleted, and not yet committed, is seen here still: it must not be waited for, as the INSERT
 * would for as long as its handler runs. An event that the broker refused for good is nobody's to deliver: its dead letter is an operator's, who may have closed
 * it by hand. One that was retried is on its way again.
 */
const chunkSql = `
WITH p AS MATERIALIZED (SELECT id, type, created_at FROM outbox.events WHERE id > $2::uuid AND id < $3::uuid ORDER BY id LIMIT $4::int),
i AS (INSERT INTO outbox.deliveries (event_id, durable) SELECT p.id, $1::smallint FROM p
      WHERE EXISTS (SELECT 1 FROM outbox.durable_types y WHERE y.durable = $1::smallint AND y.ended_at IS NULL AND p.type LIKE y.matcher AND p.created_at >= y.since)
      AND NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(p.id) AND h.event_id = p.id AND h.durable IN (0, $1::smallint))
      AND NOT EXISTS (SELECT 1 FROM outbox.deliveries d WHERE d.event_id = p.id AND d.durable = $1::smallint)
      AND NOT EXISTS (SELECT 1 FROM outbox.queue q WHERE q.event_id = p.id AND q.attempts > 0)
      AND NOT EXISTS (SELECT 1 FROM outbox.dead_letters l WHERE l.event_id = p.id AND l.durable = '${relayName}' AND l.resolution IS DISTINCT FROM 'retried')
      ON CONFLICT DO NOTHING RETURNING 1)
SELECT (SELECT count(*)::int FROM i) AS found, (SELECT count(*)::int FROM p) AS looked, (SELECT max(id::text) FROM p) AS last`;

/** Never backwards, except by nobody: two lookers of one durable may end in either order. */
const verifiedSql = `
UPDATE outbox.durables SET verified_to = greatest(verified_to, to_timestamp((('x' || substr(replace($2::text, '-', ''), 1, 12))::bit(48)::bigint) / 1000.0)),
  verified_all_at = CASE WHEN $3::boolean THEN clock_timestamp() ELSE verified_all_at END WHERE id = $1::smallint AND state = 'active'`;

/** No broker serves it any more. */
const unservedSql = 'UPDATE outbox.durables SET verified_to = NULL, verified_all_at = NULL WHERE id = $1::smallint';

/** As one at which everything was looked at long ago: when it is revived it is time to do so again. */
const forgottenSql = `
UPDATE outbox.durables SET verified_to = NULL, verified_all_at = '-infinity' WHERE id = $1::smallint AND state = 'retired'`;
