/**
 * Version 1: events, queue, deliveries, marks, attempts, dead letters, durables, workers; the ring of day partitions.
 *
 * `outbox.` stands for the schema's real name, `{registration}` for the advisory lock key that orders registration
 * and fan-out. The reasons for the less obvious choices:
 * - partition keys come last in the primary keys, so that a look-up by id uses the leading column;
 * - the ring of ten day partitions is created once: forgetting a day is TRUNCATE, and there is no DDL at run time;
 * - the `deliveries` indexes hold only rows without a lease, so that a handed-over row never enters them; those of
 *   rows with three interruptions and more are apart, because such rows are taken one at a time, alone in a process;
 * - vacuum comes early on the two hot tables and never for insert-only partitions, which leave whole;
 * - no foreign keys: they would lock rows across partitions on the hot path.
 */
export const v1 = {
  version: 1,
  /** The oldest library level that can run on it; see `schema-versions.ts`. */
  minLibrary: 1,
  up: `
CREATE TABLE outbox.schema_version (version int NOT NULL, min_library int NOT NULL, ring smallint NOT NULL, bucket_ms bigint NOT NULL,
  installed_at timestamptz NOT NULL DEFAULT now());
INSERT INTO outbox.schema_version (version, min_library, ring, bucket_ms) VALUES (0, 0, 10, 86400000);

-- UUID v7: 48 bits of the due time's milliseconds, the rest from gen_random_uuid(); bits 52 and 53 turn version 4 into 7.
CREATE FUNCTION outbox.uuid7(due timestamptz) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
           PLACING substring(int8send(floor(extract(epoch FROM due) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid $$;
-- The smallest id of a moment, for ranges.
CREATE FUNCTION outbox.uuid7_floor(due timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT encode(overlay('\\x00000000000000000000000000000000'::bytea
           PLACING substring(int8send(floor(extract(epoch FROM due) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 'hex')::uuid $$;
-- The bucket of an id: its day, modulo the ring.
CREATE FUNCTION outbox.bucket(id uuid) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ((('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 86400000) % 10)::smallint $$;

CREATE TABLE outbox.durables (id smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
  formerly text[] NOT NULL DEFAULT '{}', state text NOT NULL DEFAULT 'active', seen_at timestamptz);
CREATE TABLE outbox.durable_types (durable smallint NOT NULL, pattern text NOT NULL, matcher text NOT NULL, since timestamptz NOT NULL,
  ended_at timestamptz, backfill_to uuid, PRIMARY KEY (durable, pattern));

CREATE TABLE outbox.events (bucket smallint NOT NULL, id uuid NOT NULL, tenant_id text, type text NOT NULL, subject text,
  payload jsonb NOT NULL, headers jsonb, unique_key bytea, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (id, bucket)) PARTITION BY LIST (bucket);
CREATE TABLE outbox.handled (bucket smallint NOT NULL, event_id uuid NOT NULL, durable smallint NOT NULL,
  verdict "char" NOT NULL CHECK (verdict IN ('d', 'x', 'c')), attempts smallint NOT NULL DEFAULT 1, worker int,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (event_id, durable, bucket)) PARTITION BY LIST (bucket);
COMMENT ON COLUMN outbox.handled.verdict IS 'd done, x dead, c cancelled';
CREATE TABLE outbox.attempts (bucket smallint NOT NULL, event_id uuid NOT NULL, durable smallint NOT NULL, n smallint NOT NULL,
  error text, worker int, failed_at timestamptz NOT NULL DEFAULT clock_timestamp(), next_at timestamptz) PARTITION BY LIST (bucket);
CREATE INDEX attempts_delivery ON outbox.attempts (event_id, durable);
DO $$ BEGIN FOR b IN 0..9 LOOP
  EXECUTE format('CREATE TABLE outbox.events_%s PARTITION OF outbox.events FOR VALUES IN (%s) WITH (autovacuum_vacuum_insert_threshold = -1, toast.autovacuum_vacuum_insert_threshold = -1)', b, b);
  EXECUTE format('CREATE TABLE outbox.handled_%s PARTITION OF outbox.handled FOR VALUES IN (%s) WITH (autovacuum_vacuum_insert_threshold = -1)', b, b);
  EXECUTE format('CREATE TABLE outbox.attempts_%s PARTITION OF outbox.attempts FOR VALUES IN (%s)', b, b);
END LOOP; END $$;

CREATE TABLE outbox.queue (due_at timestamptz NOT NULL DEFAULT clock_timestamp(), seq bigint GENERATED ALWAYS AS IDENTITY,
  event_id uuid NOT NULL, attempts smallint NOT NULL DEFAULT 0, last_error text, PRIMARY KEY (due_at, seq))
  WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE outbox.scheduled (id uuid PRIMARY KEY, due_at timestamptz NOT NULL, tenant_id text, type text NOT NULL, subject text,
  payload jsonb NOT NULL, headers jsonb, unique_key bytea, created_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX scheduled_due ON outbox.scheduled (due_at);

CREATE TABLE outbox.deliveries (event_id uuid NOT NULL, durable smallint NOT NULL, due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  attempt smallint NOT NULL DEFAULT 0, interruptions smallint NOT NULL DEFAULT 0, snoozes smallint NOT NULL DEFAULT 0,
  lease int, last_error text, PRIMARY KEY (event_id, durable))
  WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1);
CREATE INDEX deliveries_ready ON outbox.deliveries (durable, due_at) WHERE lease IS NULL AND interruptions < 3;
CREATE INDEX deliveries_alone ON outbox.deliveries (durable, due_at) WHERE lease IS NULL AND interruptions >= 3;

CREATE TABLE outbox.dead_letters (event_id uuid NOT NULL, durable text NOT NULL, tenant_id text, type text NOT NULL, subject text,
  payload jsonb NOT NULL, headers jsonb, created_at timestamptz NOT NULL, error text, attempts smallint, history jsonb,
  dead_at timestamptz NOT NULL DEFAULT clock_timestamp(), resolved_at timestamptz, resolution text, PRIMARY KEY (event_id, durable));
CREATE INDEX dead_letters_open ON outbox.dead_letters (dead_at, event_id, durable) WHERE resolved_at IS NULL;
CREATE TABLE outbox.unique_keys (tenant text NOT NULL, type text NOT NULL, key bytea NOT NULL, event_id uuid NOT NULL,
  expires_at timestamptz NOT NULL, PRIMARY KEY (tenant, type, key));
CREATE INDEX unique_keys_expiry ON outbox.unique_keys (expires_at);
CREATE TABLE outbox.workers (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, app text, exclusive boolean NOT NULL DEFAULT false,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(), seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  gone_at timestamptz, in_flight jsonb);
-- Emptied by the server itself when it recovers from a crash, and at the promotion of a standby: a worker that has lost
-- its lock and has no row here lost it with the server. Nothing else tells, the postmaster's start time stays.
CREATE UNLOGGED TABLE outbox.lives (worker int PRIMARY KEY);

-- The claim, one function per bucket: SET clauses put the caller's settings back by themselves, the plan is made
-- without sequential scans, and 300 ms is all it waits for another claim of the same delivery. Row first, then mark:
-- whoever claims or cancels takes them in this order, or two of them would deadlock.
DO $do$ BEGIN FOR b IN 0..9 LOOP EXECUTE replace($f$
CREATE FUNCTION outbox.claim_@(ev uuid, du smallint, le int, OUT attempt smallint, OUT interruptions smallint, OUT snoozes smallint,
  OUT claimed boolean, OUT tenant_id text, OUT type text, OUT subject text, OUT payload jsonb, OUT headers jsonb, OUT created_ms bigint, OUT pid int)
LANGUAGE plpgsql SET lock_timeout = '300ms' SET enable_seqscan = off AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'on', true); END IF;
  pid := pg_backend_pid();
  claimed := false;
  DELETE FROM outbox.deliveries x WHERE x.event_id = ev AND x.durable = du AND x.lease = le
    RETURNING x.attempt, x.interruptions, x.snoozes INTO attempt, interruptions, snoozes;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT e.tenant_id, e.type, e.subject, e.payload, e.headers, floor(extract(epoch FROM e.created_at) * 1000)
    INTO tenant_id, type, subject, payload, headers, created_ms FROM outbox.events_@ e WHERE e.bucket = @ AND e.id = ev;
  IF NOT FOUND THEN RETURN; END IF;
  INSERT INTO outbox.handled_@ (bucket, event_id, durable, verdict, attempts, worker) VALUES (@, ev, du, 'd', attempt + 1, le)
    ON CONFLICT DO NOTHING;
  claimed := FOUND;
  PERFORM set_config('app.tenant_id', coalesce(tenant_id, ''), true);
END $$ $f$, '@', b::text); END LOOP; END $do$;
`,
  down: `
DO $$ BEGIN FOR b IN 0..9 LOOP EXECUTE format('DROP FUNCTION IF EXISTS outbox.claim_%s(uuid, smallint, int)', b); END LOOP; END $$;
DROP TABLE IF EXISTS outbox.lives, outbox.workers, outbox.unique_keys, outbox.dead_letters, outbox.deliveries, outbox.scheduled, outbox.queue,
  outbox.attempts, outbox.handled, outbox.events, outbox.durable_types, outbox.durables, outbox.schema_version;
DROP FUNCTION IF EXISTS outbox.bucket(uuid);
DROP FUNCTION IF EXISTS outbox.uuid7_floor(timestamptz);
DROP FUNCTION IF EXISTS outbox.uuid7(timestamptz);
`,
} as const;
