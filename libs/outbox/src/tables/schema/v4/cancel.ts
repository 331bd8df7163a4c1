/**
 * Cancelling, in the caller's own transaction, which stays usable whatever the answer. Row first, then mark, as the claim
 * does, or the two would deadlock; each durable by itself, and 50 ms is all that one waits for a claim that runs: then
 * it is too late. The shared registration lock keeps new durables away until the caller has committed. `cancelled` and
 * `too_late` count deliveries; an event that nobody is to get counts as one. What was cancelled before counts as neither.
 * With their owner's rights, because a publisher may read nothing.
 */
export const cancelUp = `
CREATE FUNCTION outbox.cancel(ev uuid, OUT cancelled int, OUT too_late int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' SET enable_seqscan = off AS $$
DECLARE b smallint := outbox.bucket(ev); e record; d record; due timestamptz; marked "char"; n int;
BEGIN
  cancelled := 0; too_late := 0;
  BEGIN
    PERFORM pg_advisory_xact_lock_shared({registration}, 0);
    WITH s AS (DELETE FROM outbox.scheduled WHERE id = ev RETURNING *)
    INSERT INTO outbox.events (bucket, id, tenant_id, type, subject, payload, headers, unique_key, created_at)
      SELECT b, s.id, s.tenant_id, s.type, s.subject, s.payload, s.headers, s.unique_key, s.created_at FROM s;
  EXCEPTION WHEN lock_not_available OR serialization_failure OR deadlock_detected THEN
    -- A registration runs, or the relay moves the event at this moment. Nothing has been done yet.
    too_late := 1;
    RETURN;
  END;
  SELECT x.tenant_id, x.type, x.unique_key, x.created_at INTO e FROM outbox.events x WHERE x.bucket = b AND x.id = ev;
  IF NOT FOUND THEN RETURN; END IF;
  FOR d IN SELECT DISTINCT t.durable FROM outbox.durable_types t JOIN outbox.durables r ON r.id = t.durable AND r.state = 'active'
      WHERE e.type LIKE t.matcher AND e.created_at >= t.since AND t.ended_at IS NULL
      UNION SELECT w.durable FROM outbox.deliveries w WHERE w.event_id = ev ORDER BY 1 LOOP
    BEGIN
      DELETE FROM outbox.deliveries w WHERE w.event_id = ev AND w.durable = d.durable;
      INSERT INTO outbox.handled (bucket, event_id, durable, verdict, attempts) VALUES (b, ev, d.durable, 'c', 0) ON CONFLICT DO NOTHING;
      GET DIAGNOSTICS n = ROW_COUNT;
      IF n = 1 THEN
        cancelled := cancelled + 1;
      ELSE
        SELECT h.verdict INTO marked FROM outbox.handled h WHERE h.bucket = b AND h.event_id = ev AND h.durable = d.durable;
        -- Not to be seen by an older snapshot: somebody's, and committed.
        IF marked IS DISTINCT FROM 'c' THEN too_late := too_late + 1; END IF;
      END IF;
    EXCEPTION WHEN lock_not_available OR serialization_failure OR deadlock_detected THEN
      too_late := too_late + 1;
    END;
  END LOOP;
  IF too_late > 0 THEN RETURN; END IF;
  INSERT INTO outbox.handled (bucket, event_id, durable, verdict, attempts) VALUES (b, ev, 0, 'c', 0) ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n = 0 THEN RETURN; END IF;
  cancelled := greatest(cancelled, 1);
  -- Ids carry the due time. A row that the relay has locked goes its way, and finds the marks at its end.
  due := timestamptz 'epoch' + (('x' || substr(replace(ev::text, '-', ''), 1, 12))::bit(48)::bigint) * interval '1 millisecond';
  DELETE FROM outbox.queue q WHERE (q.due_at, q.seq) IN (SELECT w.due_at, w.seq FROM outbox.queue w
    WHERE w.due_at >= due AND w.due_at < due + interval '1 millisecond' AND w.event_id = ev FOR UPDATE SKIP LOCKED);
  IF e.unique_key IS NOT NULL THEN
    DELETE FROM outbox.unique_keys k WHERE k.tenant = coalesce(e.tenant_id, '') AND k.type = e.type AND k.key = e.unique_key AND k.event_id = ev;
  END IF;
END $$;

CREATE FUNCTION outbox.cancel_unique(tenant text, of_type text, unique_by text, OUT cancelled int, OUT too_late int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE ev uuid;
BEGIN
  SELECT k.event_id INTO ev FROM outbox.unique_keys k
    WHERE k.tenant = coalesce(cancel_unique.tenant, '') AND k.type = of_type AND k.key = sha256(convert_to(unique_by, 'UTF8'));
  SELECT c.cancelled, c.too_late INTO cancelled, too_late FROM outbox.cancel(ev) c;
END $$;

CREATE FUNCTION outbox.cancel_subject(tenant text, of_type text, of_subject text, OUT cancelled int, OUT too_late int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE ev uuid; one record;
BEGIN
  cancelled := 0; too_late := 0;
  FOR ev IN SELECT e.id FROM outbox.events e WHERE e.subject = of_subject AND e.type = of_type AND e.tenant_id IS NOT DISTINCT FROM cancel_subject.tenant
      UNION ALL SELECT s.id FROM outbox.scheduled s WHERE s.subject = of_subject AND s.type = of_type AND s.tenant_id IS NOT DISTINCT FROM cancel_subject.tenant ORDER BY 1 LOOP
    SELECT c.cancelled, c.too_late INTO one FROM outbox.cancel(ev) c;
    cancelled := cancelled + one.cancelled;
    too_late := too_late + one.too_late;
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION outbox.cancel(uuid), outbox.cancel_unique(text, text, text), outbox.cancel_subject(text, text, text) FROM PUBLIC;
`;

export const cancelDown = `
DROP FUNCTION IF EXISTS outbox.cancel_subject(text, text, text);
DROP FUNCTION IF EXISTS outbox.cancel_unique(text, text, text);
DROP FUNCTION IF EXISTS outbox.cancel(uuid);
`;
