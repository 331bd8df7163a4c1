import { cancelDown, cancelUp } from './v4/cancel.js';
import { claimsDown, claimsUp } from './v4/claims.js';
import { viewsDown, viewsUp } from './v4/views.js';

/**
 * Version 4: the operator's side. Expand only: a library that needs version 3 runs on it, and obeys its pauses.
 *
 * - `pauses`: what is not to be handled for now. The claim itself reads it, so that every worker obeys at once, whatever
 *   its version: what it finds paused it parks, which is a lease of minus the pause's number. Parked rows are in no
 *   index that a taker reads, cost nothing while they wait, and are freed when the pause has ended. The rows of pauses
 *   that are over stay, as history and because a claim that read one may still commit;
 * - `audit`: who did what, and why; written in the statement that does it;
 * - `cancel`, `cancel_unique`, `cancel_subject`: a verdict under the same key as success. The mark of durable 0 stands
 *   for whoever registers later;
 * - the index on subjects is partial: events without one do not pay for it. With the id, because the newest of a subject
 *   are asked for: by the subject alone the planner, which knows how many an average subject has, walks all events from
 *   the newest on, and of a subject that has few it reads every one. On an outbox that is in use, make it
 *   beforehand (`events_subject`, a partition at a time, CONCURRENTLY): here it keeps publishers waiting for as long as
 *   it takes, one to three seconds for each million events with a subject.
 */
export const v4 = {
  version: 4,
  minLibrary: 1,
  up: `
CREATE TABLE outbox.pauses (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL CHECK (kind IN ('durable', 'type', 'tenant', 'job')),
  name text NOT NULL, durable smallint, matcher text, reason text, paused_by text, since timestamptz NOT NULL DEFAULT clock_timestamp(), until timestamptz,
  ended_at timestamptz, ended_by text, released_at timestamptz);
CREATE UNIQUE INDEX pauses_one ON outbox.pauses (kind, name) WHERE ended_at IS NULL;
CREATE INDEX pauses_unreleased ON outbox.pauses (id) WHERE released_at IS NULL;
COMMENT ON COLUMN outbox.pauses.released_at IS 'nothing is parked under it any more';
-- The claim reads it as whoever claims; a worker's own grants may come a statement later.
GRANT SELECT ON outbox.pauses TO PUBLIC;
CREATE INDEX deliveries_parked ON outbox.deliveries (lease, event_id) WHERE lease < 0;

CREATE TABLE outbox.audit (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(),
  who text NOT NULL, role text NOT NULL DEFAULT current_user, action text NOT NULL, what jsonb NOT NULL, why text);
CREATE INDEX audit_at ON outbox.audit (at);

CREATE INDEX IF NOT EXISTS events_subject ON outbox.events (subject, id) WHERE subject IS NOT NULL;
CREATE INDEX scheduled_subject ON outbox.scheduled (subject, id) WHERE subject IS NOT NULL;
CREATE INDEX handled_ended ON outbox.handled (event_id, durable) WHERE verdict <> 'd';
CREATE INDEX dead_letters_event ON outbox.dead_letters (event_id) WHERE resolved_at IS NULL OR durable = '#relay';
CREATE INDEX dead_letters_durable ON outbox.dead_letters (durable, dead_at) WHERE resolved_at IS NULL;
ALTER TABLE outbox.job_state ADD COLUMN asked_at timestamptz, ADD COLUMN asked_by text;
COMMENT ON COLUMN outbox.job_state.asked_at IS 'the slot of one more run, now';
${claimsUp}${cancelUp}${viewsUp}`,
  down: `
${viewsDown}${cancelDown}${claimsDown}
ALTER TABLE outbox.job_state DROP COLUMN IF EXISTS asked_at, DROP COLUMN IF EXISTS asked_by;
DROP INDEX IF EXISTS outbox.dead_letters_durable, outbox.dead_letters_event, outbox.handled_ended, outbox.scheduled_subject, outbox.events_subject, outbox.deliveries_parked;
DROP TABLE IF EXISTS outbox.audit, outbox.pauses;
`,
} as const;
