/** An event is meant for a durable when the fan-out would give it to it. */
const meant = `SELECT t.durable FROM outbox.durable_types t JOIN outbox.durables r ON r.id = t.durable AND r.state = 'active'
      WHERE e.type LIKE t.matcher AND e.created_at >= t.since AND t.ended_at IS NULL`;

/** Where an event stands in the queue: ids carry their due time, and what a broker refused waits under a later one. */
const queued = (id: string, due: string): string =>
  `q.event_id = ${id} AND ((q.due_at >= ${due} AND q.due_at < ${due} + interval '1 millisecond') OR (q.attempts > 0 AND q.event_id = ${id}))`;

/**
 * What keeps a statement of ours from a row: somebody has it, or an older snapshot does not show it. Caught behind a
 * savepoint each time, because the caller's transaction is not ours to break.
 */
const refused = 'lock_not_available OR serialization_failure OR deadlock_detected';

/**
 * Cancelling, in the caller's own transaction, which stays usable whatever the answer: every statement that may have to
 * wait is behind a savepoint of its own. With their owner's rights, because a publisher may read nothing.
 *
 * In this order, which is everybody's: the queue's row and the key; then each durable by itself, row first and mark
 * second, as the claim does, or the two would deadlock; last the mark of durable 0, for whoever registers later.
 * - The queue's row first, so that no fan-out begins that knows more durables than we do. One that the relay has locked
 *   goes its way, and finds the marks at its end.
 * - The key before any mark, because a mark without it would fold later events into one that never runs. Another
 *   transaction that has published the same key and is open counts on the event: half a second, then it is too late.
 *   (Less than deadlock_timeout: whoever waits here gives way, and is nobody's victim.)
 * - 50 ms is all that one waits for a claim that runs.
 * - An older snapshot (REPEATABLE READ) may not show that a row has moved since; the mark alone decides then.
 *
 * `cancel_each` gives each durable its own mark, where the one of durable 0 is to go.
 *
 * The shared lock tells back-fills that a cancel is under way, which may not know a durable that registers meanwhile. It
 * is only tried: whoever has it exclusively has registered. (The registration lock itself would keep the relay waiting,
 * behind a registration, for as long as the caller's transaction is open.)
 *
 * `cancelled` and `too_late` count deliveries, `late` names the events of the latter. An event that nobody is to get
 * counts as one; what was cancelled before, as neither. A bucket that is a parameter would lock every partition, until the
 * caller commits; custom plans all through cost three times as much as these two.
 */
export const cancelUp = `
CREATE FUNCTION outbox.due_of(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT timestamptz 'epoch' + (('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint) * interval '1 millisecond' $$;

CREATE FUNCTION outbox.cancel(ev uuid, OUT cancelled int, OUT too_late int, OUT late uuid[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' SET enable_seqscan = off SET jit = off AS $$
DECLARE b smallint := outbox.bucket(ev); due timestamptz := outbox.due_of(ev); e record; du smallint; places bigint[]; marked "char"; n int;
BEGIN
  cancelled := 0; too_late := 0;
  PERFORM pg_try_advisory_xact_lock_shared({registration}, 1);
  BEGIN
    -- Not before tomorrow: it has no row in the queue, and gets none.
    WITH s AS (DELETE FROM outbox.scheduled WHERE id = ev RETURNING *)
    INSERT INTO outbox.events (bucket, id, tenant_id, type, subject, payload, headers, unique_key, created_at)
      SELECT b, s.id, s.tenant_id, s.type, s.subject, s.payload, s.headers, s.unique_key, s.created_at FROM s;
    EXECUTE format('SELECT x.tenant_id, x.type, x.unique_key, x.created_at FROM outbox.events_%1$s x WHERE x.bucket = %1$s AND x.id = $1', b) INTO e USING ev;
    IF e.type IS NULL THEN RETURN; END IF;
    BEGIN
      SELECT array_agg(l.seq) INTO places FROM (SELECT q.seq FROM outbox.queue q WHERE ${queued('ev', 'due')} FOR UPDATE SKIP LOCKED) l;
    EXCEPTION WHEN ${refused} THEN NULL;
    END;
    IF e.unique_key IS NOT NULL THEN
      PERFORM 1 FROM outbox.unique_keys k WHERE k.tenant = coalesce(e.tenant_id, '') AND k.type = e.type AND k.key = e.unique_key AND k.event_id = ev FOR UPDATE;
    END IF;
  EXCEPTION WHEN ${refused} THEN
    too_late := 1; late := ARRAY[ev];
    RETURN;
  END;
  PERFORM set_config('lock_timeout', '50ms', true);
  FOR du IN ${meant}
      UNION SELECT w.durable FROM outbox.deliveries w WHERE w.event_id = ev ORDER BY 1 LOOP
    BEGIN
      BEGIN
        DELETE FROM outbox.deliveries w WHERE w.event_id = ev AND w.durable = du;
      EXCEPTION WHEN serialization_failure THEN NULL;
      END;
      INSERT INTO outbox.handled (bucket, event_id, durable, verdict, attempts) VALUES (b, ev, du, 'c', 0) ON CONFLICT DO NOTHING;
      GET DIAGNOSTICS n = ROW_COUNT;
      IF n = 1 THEN
        cancelled := cancelled + 1;
      ELSE
        EXECUTE format('SELECT h.verdict FROM outbox.handled_%1$s h WHERE h.bucket = %1$s AND h.event_id = $1 AND h.durable = $2', b) INTO marked USING ev, du;
        IF marked IS DISTINCT FROM 'c' THEN too_late := too_late + 1; END IF;
      END IF;
    EXCEPTION WHEN ${refused} THEN
      too_late := too_late + 1;
    END;
  END LOOP;
  IF too_late > 0 THEN
    late := ARRAY[ev];
    RETURN;
  END IF;
  BEGIN
    INSERT INTO outbox.handled (bucket, event_id, durable, verdict, attempts) VALUES (b, ev, 0, 'c', 0) ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    IF n = 0 THEN RETURN; END IF;
  EXCEPTION WHEN ${refused} THEN
    -- Another one cancels it at this moment.
    IF cancelled = 0 THEN too_late := 1; late := ARRAY[ev]; END IF;
    RETURN;
  END;
  cancelled := greatest(cancelled, 1);
  -- Both are locked by now, and neither is waited for.
  DELETE FROM outbox.queue q WHERE q.seq = ANY (places) AND ${queued('ev', 'due')};
  DELETE FROM outbox.unique_keys k WHERE k.tenant = coalesce(e.tenant_id, '') AND k.type = e.type AND k.key = e.unique_key AND k.event_id = ev;
  BEGIN
    -- The letter of an event that could not be forwarded is nobody's work any more; an operator may have it in hand.
    UPDATE outbox.dead_letters l SET resolved_at = clock_timestamp(), resolution = 'cancelled' WHERE l.event_id = ev AND l.durable = '#relay' AND l.resolved_at IS NULL;
  EXCEPTION WHEN ${refused} THEN NULL;
  END;
END $$;

CREATE FUNCTION outbox.cancel_unique(tenant text, of_type text, unique_by text, OUT cancelled int, OUT too_late int, OUT late uuid[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE ev uuid;
BEGIN
  SELECT k.event_id INTO ev FROM outbox.unique_keys k
    WHERE k.tenant = coalesce(cancel_unique.tenant, '') AND k.type = of_type AND k.key = sha256(convert_to(unique_by, 'UTF8'));
  cancelled := 0; too_late := 0;
  IF ev IS NOT NULL THEN SELECT c.* INTO cancelled, too_late, late FROM outbox.cancel(ev) c; END IF;
END $$;

-- Of what is open: what has ended with a verdict of every durable is history, and would count as too late for ever.
CREATE FUNCTION outbox.cancel_subject(tenant text, of_type text, of_subject text, OUT cancelled int, OUT too_late int, OUT late uuid[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE ev uuid; one record;
BEGIN
  cancelled := 0; too_late := 0;
  FOR ev IN SELECT e.id FROM outbox.events e WHERE e.subject = of_subject AND e.type = of_type AND e.tenant_id IS NOT DISTINCT FROM cancel_subject.tenant
        AND (EXISTS (SELECT 1 FROM outbox.deliveries w WHERE w.event_id = e.id)
          OR EXISTS (${meant} AND NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = outbox.bucket(e.id) AND h.event_id = e.id AND h.durable IN (0, t.durable)))
          OR EXISTS (SELECT 1 FROM outbox.queue q WHERE ${queued('e.id', 'outbox.due_of(e.id)')}))
      UNION ALL SELECT s.id FROM outbox.scheduled s WHERE s.subject = of_subject AND s.type = of_type AND s.tenant_id IS NOT DISTINCT FROM cancel_subject.tenant ORDER BY 1 LOOP
    SELECT c.* INTO one FROM outbox.cancel(ev) c;
    cancelled := cancelled + one.cancelled;
    too_late := too_late + one.too_late;
    late := late || one.late;
  END LOOP;
END $$;

-- In place of the mark for all, which an operator is about to take away for one durable. Whoever may call it can mark nothing else.
CREATE FUNCTION outbox.cancel_each(ev uuid, but smallint) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE b smallint := outbox.bucket(ev); n int;
BEGIN
  INSERT INTO outbox.handled (bucket, event_id, durable, verdict, attempts)
    SELECT b, ev, du.durable, 'c', 0 FROM outbox.events e CROSS JOIN LATERAL (${meant}) du
      WHERE e.bucket = b AND e.id = ev AND du.durable <> but AND EXISTS (SELECT 1 FROM outbox.handled h WHERE h.bucket = b AND h.event_id = ev AND h.durable = 0)
      ORDER BY du.durable ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n;
END $$;
REVOKE ALL ON FUNCTION outbox.cancel(uuid), outbox.cancel_each(uuid, smallint), outbox.cancel_unique(text, text, text), outbox.cancel_subject(text, text, text) FROM PUBLIC;
`;

export const cancelDown = `
DROP FUNCTION IF EXISTS outbox.cancel_subject(text, text, text);
DROP FUNCTION IF EXISTS outbox.cancel_unique(text, text, text);
DROP FUNCTION IF EXISTS outbox.cancel_each(uuid, smallint);
DROP FUNCTION IF EXISTS outbox.cancel(uuid);
DROP FUNCTION IF EXISTS outbox.due_of(uuid);
`;
