/**
 * Version 2: periodic jobs and retention. Expand only: a library that needs version 1 runs on it.
 *
 * - `job_state` is one row a job: it decides the slot. No index but its key, so that a tick is a HOT update;
 * - `job_runs` is history for people, and nothing depends on it; jobs that tick more than once a minute have none;
 * - `job_tenants` is the mark of (job, slot, tenant), inserted in the tenant's own transaction, gone with its slot;
 * - the kept tables hold what a forgotten day leaves behind, within one transaction. Unlogged, and no temporary ones:
 *   those need a privilege on the database that is often revoked. A column that a later version adds to the ring, it
 *   adds to them as well.
 */
export const v2 = {
  version: 2,
  minLibrary: 1,
  up: `
CREATE TABLE outbox.job_state (job text PRIMARY KEY, schedule text NOT NULL, former text[] NOT NULL DEFAULT '{}',
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp(), last_slot timestamptz NOT NULL DEFAULT clock_timestamp(),
  running_slot timestamptz, attempt smallint NOT NULL DEFAULT 0, worker int, started_at timestamptz, deadline timestamptz, next_slot timestamptz,
  retry_at timestamptz, finished_at timestamptz, outcome text CHECK (outcome IN ('done', 'failed', 'lock lost', 'interrupted')), last_error text)
  WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 10000, autovacuum_vacuum_insert_threshold = -1);
COMMENT ON COLUMN outbox.job_state.former IS 'schedules the job had before: whoever still has one of them is an older version, and goes quiet';
CREATE TABLE outbox.job_runs (job text NOT NULL, slot timestamptz NOT NULL, attempt smallint NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(), finished_at timestamptz, worker int,
  outcome text CHECK (outcome IN ('done', 'failed', 'lock lost', 'interrupted')), error text, PRIMARY KEY (job, slot, attempt));
CREATE TABLE outbox.job_tenants (job text NOT NULL, slot timestamptz NOT NULL, part smallint NOT NULL, tenant text NOT NULL, error text,
  finished_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (job, slot, part, tenant));

-- The claim of one tenant of one slot, in the tenant's own transaction; as outbox.claim_0 to claim_9 are for deliveries.
-- A slot that is over has no marks any more: a process that was paused and has not heard of it would begin anew.
CREATE FUNCTION outbox.claim_tenant(j text, s timestamptz, p smallint, t text, OUT claimed boolean, OUT pid int, OUT failed text)
LANGUAGE plpgsql SET lock_timeout = '300ms' SET enable_seqscan = off AS $$
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'on', true); END IF;
  pid := pg_backend_pid();
  INSERT INTO outbox.job_tenants (job, slot, part, tenant) SELECT j, s, p, t FROM outbox.job_state o WHERE o.job = j AND o.running_slot = s
  ON CONFLICT DO NOTHING;
  claimed := FOUND;
  -- Also a mark of our own whose commit was not answered: run already is not run well.
  IF NOT claimed THEN SELECT x.error INTO failed FROM outbox.job_tenants x WHERE x.job = j AND x.slot = s AND x.part = p AND x.tenant = t; END IF;
  PERFORM set_config('app.tenant_id', t, true);
END $$;

CREATE INDEX dead_letters_resolved ON outbox.dead_letters (resolved_at) WHERE resolved_at IS NOT NULL;

CREATE UNLOGGED TABLE outbox.kept_events (LIKE outbox.events);
CREATE UNLOGGED TABLE outbox.kept_handled (LIKE outbox.handled);
CREATE UNLOGGED TABLE outbox.kept_attempts (LIKE outbox.attempts);

-- Forgets the events of bucket b that were due before a moment. What is queued or unfinished, what a back-fill has not
-- looked at, and a newer day that has come into the bucket already, are set aside and put back. The marks are left to
-- forget_marks, in a later transaction: in one of its own a claim that has read the event would insert a mark again.
-- Nested loops by index alone, said by OFFSET 0 and the planner settings, because all this happens under the lock: one
-- pass over two million rows took 2.3 s, the look-ups of a thousand survivors take 20 ms. READ COMMITTED, because an
-- older snapshot would not show what was committed while the lock was waited for, and TRUNCATE would take it away.
CREATE FUNCTION outbox.forget_events(b int, before timestamptz, OUT kept int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '150ms' SET enable_seqscan = off SET jit = off AS $$
DECLARE first uuid := outbox.uuid7_floor(before);
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE 'outbox.forget_events needs READ COMMITTED' USING ERRCODE = '25001'; END IF;
  EXECUTE format('LOCK TABLE outbox.events_%s IN ACCESS EXCLUSIVE MODE', b);
  TRUNCATE outbox.kept_events;
  EXECUTE format('INSERT INTO outbox.kept_events SELECT * FROM outbox.events_%s WHERE id >= $1', b) USING first;
  EXECUTE format('INSERT INTO outbox.kept_events SELECT e.* FROM (
      SELECT event_id AS id FROM outbox.queue WHERE event_id < $1 AND outbox.bucket(event_id) = $2
      UNION SELECT event_id FROM outbox.deliveries WHERE event_id < $1 AND outbox.bucket(event_id) = $2
      UNION SELECT y.id FROM outbox.durable_types t CROSS JOIN LATERAL (SELECT x.id FROM outbox.events_%1$s x
        WHERE x.id > t.backfill_to AND x.id < $1 AND x.type LIKE t.matcher OFFSET 0) y WHERE t.backfill_to IS NOT NULL AND t.ended_at IS NULL
          AND t.durable NOT IN (SELECT n.id FROM outbox.durables n WHERE n.state = ''retired'')) w
    CROSS JOIN LATERAL (SELECT * FROM outbox.events_%1$s x WHERE x.id = w.id OFFSET 0) e', b) USING first, b;
  EXECUTE format('TRUNCATE outbox.events_%s', b);
  EXECUTE format('INSERT INTO outbox.events_%s SELECT * FROM outbox.kept_events', b);
  GET DIAGNOSTICS kept = ROW_COUNT;
  TRUNCATE outbox.kept_events;
END $$;
-- Forgets the marks and attempts of bucket b whose events are gone.
CREATE FUNCTION outbox.forget_marks(b int, OUT kept int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '150ms' SET enable_seqscan = off SET jit = off AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE 'outbox.forget_marks needs READ COMMITTED' USING ERRCODE = '25001'; END IF;
  EXECUTE format('LOCK TABLE outbox.handled_%1$s, outbox.attempts_%1$s IN ACCESS EXCLUSIVE MODE', b);
  TRUNCATE outbox.kept_handled, outbox.kept_attempts;
  EXECUTE format('INSERT INTO outbox.kept_handled SELECT h.* FROM outbox.events_%1$s e
    CROSS JOIN LATERAL (SELECT * FROM outbox.handled_%1$s x WHERE x.event_id = e.id OFFSET 0) h', b);
  EXECUTE format('INSERT INTO outbox.kept_attempts SELECT a.* FROM outbox.events_%1$s e
    CROSS JOIN LATERAL (SELECT * FROM outbox.attempts_%1$s x WHERE x.event_id = e.id OFFSET 0) a', b);
  EXECUTE format('TRUNCATE outbox.handled_%1$s, outbox.attempts_%1$s', b);
  EXECUTE format('INSERT INTO outbox.handled_%s SELECT * FROM outbox.kept_handled', b);
  GET DIAGNOSTICS kept = ROW_COUNT;
  EXECUTE format('INSERT INTO outbox.attempts_%s SELECT * FROM outbox.kept_attempts', b);
  TRUNCATE outbox.kept_handled, outbox.kept_attempts;
END $$;
-- They run with their owner's rights, and a publisher may use the schema, too.
REVOKE ALL ON FUNCTION outbox.forget_events(int, timestamptz), outbox.forget_marks(int) FROM PUBLIC;
`,
  down: `
DROP FUNCTION IF EXISTS outbox.forget_marks(int);
DROP FUNCTION IF EXISTS outbox.forget_events(int, timestamptz);
DROP FUNCTION IF EXISTS outbox.claim_tenant(text, timestamptz, smallint, text);
DROP TABLE IF EXISTS outbox.kept_attempts, outbox.kept_handled, outbox.kept_events, outbox.job_tenants, outbox.job_runs, outbox.job_state;
DROP INDEX IF EXISTS outbox.dead_letters_resolved;
`,
} as const;
