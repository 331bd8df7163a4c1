import { v1 } from '../v1.js';
import { v3 } from '../v3.js';

/** The pause that stops this delivery, if any. Read with the event, in one look: nearly always there is none. */
const pause = `(SELECT p.id FROM outbox.pauses p WHERE p.ended_at IS NULL AND (p.until IS NULL OR p.until > clock_timestamp())
      AND CASE p.kind WHEN 'durable' THEN p.durable = du WHEN 'type' THEN e.type LIKE p.matcher WHEN 'tenant' THEN p.name = e.tenant_id ELSE false END LIMIT 1)`;

const mark = (row: string): string => `
  INSERT INTO outbox.handled_@ (bucket, event_id, durable, verdict, attempts, worker) ${row} ON CONFLICT DO NOTHING;
  claimed := FOUND;
  PERFORM set_config('app.tenant_id', coalesce(tenant_id, ''), true);
END $$ $f$, '@', b::text); END LOOP; END $do$;`;

const head = (name: string): string => `
DO $do$ BEGIN FOR b IN 0..9 LOOP EXECUTE replace($f$
CREATE OR REPLACE FUNCTION outbox.${name}_@(ev uuid, du smallint, le int, OUT attempt smallint, OUT interruptions smallint, OUT snoozes smallint,
  OUT claimed boolean, OUT tenant_id text, OUT type text, OUT subject text, OUT payload jsonb, OUT headers jsonb, OUT created_ms bigint, OUT pid int)
LANGUAGE plpgsql SET lock_timeout = '300ms' SET enable_seqscan = off AS $$
DECLARE created timestamptz; paused int;
BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'on', true); END IF;
  pid := pg_backend_pid();
  claimed := false;`;

const read = `
  SELECT e.tenant_id, e.type, e.subject, e.payload, e.headers, e.created_at, floor(extract(epoch FROM e.created_at) * 1000), ${pause}
    INTO tenant_id, type, subject, payload, headers, created, created_ms, paused FROM outbox.events_@ e WHERE e.bucket = @ AND e.id = ev;`;

/**
 * The claims of versions 1 and 3 once more, with pauses and cancelled events. What is paused is parked in place of the
 * claim; an attempt of null then says that the row is not the caller's any more, as it would of any other.
 *
 * A mark of durable 0 says that the event was cancelled for whoever registers later. Whoever makes rows looks for it; the
 * message of a durable that began later has no row, so its claim looks itself. (Asked of every claim it cost 26 µs.)
 */
export const claimsUp = `${head('claim')}${read}
  IF paused IS NOT NULL THEN
    UPDATE outbox.deliveries x SET lease = -paused WHERE x.event_id = ev AND x.durable = du AND x.lease = le;
    RETURN;
  END IF;
  DELETE FROM outbox.deliveries x WHERE x.event_id = ev AND x.durable = du AND x.lease = le
    RETURNING x.attempt, x.interruptions, x.snoozes INTO attempt, interruptions, snoozes;
  IF NOT FOUND OR type IS NULL THEN RETURN; END IF;${mark("VALUES (@, ev, du, 'd', attempt + 1, le)")}
${head('claim_message')}
  PERFORM 1 FROM outbox.deliveries x WHERE x.event_id = ev AND x.durable = du;
  IF FOUND THEN RETURN; END IF;${read}
  IF type IS NOT NULL THEN
    -- What the fan-out asks of the durable: a broker's consumer may begin earlier than the durable does, and get more types.
    PERFORM 1 FROM outbox.durables d JOIN outbox.durable_types y ON y.durable = d.id WHERE d.id = du AND d.state = 'active' AND y.ended_at IS NULL AND claim_message_@.type LIKE y.matcher AND created >= y.since;
    IF FOUND AND paused IS NOT NULL THEN
      INSERT INTO outbox.deliveries (event_id, durable, lease) SELECT ev, du, -paused
        WHERE NOT EXISTS (SELECT 1 FROM outbox.handled_@ h WHERE h.bucket = @ AND h.event_id = ev AND h.durable IN (0, du)) ON CONFLICT DO NOTHING;
      RETURN;
    END IF;
  END IF;
  attempt := 0; interruptions := 0; snoozes := 0;
  IF type IS NULL OR NOT FOUND THEN RETURN; END IF;${mark(`SELECT @, ev, du, 'd', 1, le
    WHERE NOT EXISTS (SELECT 1 FROM outbox.handled_@ c WHERE c.bucket = @ AND c.event_id = ev AND c.durable = 0)`)}
`;

const functions = (up: string): string =>
  up
    .slice(up.indexOf('DO $do$ BEGIN FOR b IN 0..9 LOOP EXECUTE replace($f$'))
    .replace('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION');

export const claimsDown = `
${functions(v1.up)}
${functions(v3.up)}
`;
