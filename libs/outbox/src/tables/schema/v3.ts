/**
 * Version 3: first deliveries by a broker's message. Expand only: a library that needs version 2 runs on it.
 *
 * - `claim_message_0` to `claim_message_9`: the claim of a delivery that has no row of its own. A row that is there is
 *   somebody else's to take: a retry, a redelivery that was counted, what the reconciler found;
 * - `durables.verified_to`: every event of before that moment has a verdict or a row for this durable. Only durables
 *   that a broker serves have one;
 * - `schema_version.installation`: which outbox this is, for a broker that several share.
 */
export const v3 = {
  version: 3,
  minLibrary: 1,
  up: `
ALTER TABLE outbox.schema_version ADD COLUMN installation uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE outbox.durables ADD COLUMN verified_to timestamptz, ADD COLUMN verified_all_at timestamptz, ADD COLUMN looked_at timestamptz;
-- What a broker refused again and again waits under a later due time than its id says; there is little of it.
CREATE INDEX queue_refused ON outbox.queue (event_id) WHERE attempts > 0;

DO $do$ BEGIN FOR b IN 0..9 LOOP EXECUTE replace($f$
CREATE FUNCTION outbox.claim_message_@(ev uuid, du smallint, le int, OUT attempt smallint, OUT interruptions smallint, OUT snoozes smallint,
  OUT claimed boolean, OUT tenant_id text, OUT type text, OUT subject text, OUT payload jsonb, OUT headers jsonb, OUT created_ms bigint, OUT pid int)
LANGUAGE plpgsql SET lock_timeout = '300ms' SET enable_seqscan = off AS $$
DECLARE created timestamptz;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'on', true); END IF;
  pid := pg_backend_pid();
  claimed := false;
  PERFORM 1 FROM outbox.deliveries x WHERE x.event_id = ev AND x.durable = du;
  IF FOUND THEN RETURN; END IF;
  attempt := 0; interruptions := 0; snoozes := 0;
  SELECT e.tenant_id, e.type, e.subject, e.payload, e.headers, e.created_at, floor(extract(epoch FROM e.created_at) * 1000)
    INTO tenant_id, type, subject, payload, headers, created, created_ms FROM outbox.events_@ e WHERE e.bucket = @ AND e.id = ev;
  IF NOT FOUND THEN RETURN; END IF;
  -- What the fan-out asks of the durable: a broker's consumer may begin earlier than the durable does, and get more types.
  PERFORM 1 FROM outbox.durables d JOIN outbox.durable_types y ON y.durable = d.id WHERE d.id = du AND d.state = 'active' AND y.ended_at IS NULL AND claim_message_@.type LIKE y.matcher AND created >= y.since;
  IF NOT FOUND THEN RETURN; END IF;
  INSERT INTO outbox.handled_@ (bucket, event_id, durable, verdict, attempts, worker) VALUES (@, ev, du, 'd', 1, le)
    ON CONFLICT DO NOTHING;
  claimed := FOUND;
  PERFORM set_config('app.tenant_id', coalesce(tenant_id, ''), true);
END $$ $f$, '@', b::text); END LOOP; END $do$;
`,
  down: `
DO $$ BEGIN FOR b IN 0..9 LOOP EXECUTE format('DROP FUNCTION IF EXISTS outbox.claim_message_%s(uuid, smallint, int)', b); END LOOP; END $$;
DROP INDEX IF EXISTS outbox.queue_refused;
ALTER TABLE outbox.durables DROP COLUMN IF EXISTS verified_to, DROP COLUMN IF EXISTS verified_all_at, DROP COLUMN IF EXISTS looked_at;
ALTER TABLE outbox.schema_version DROP COLUMN IF EXISTS installation;
`,
} as const;
