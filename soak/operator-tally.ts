import { subscriptions } from './events.js';
import type { Absence } from './fleet.js';
import type { PatientPool } from './patient-pool.js';
import type { PausedTime, Shift } from './shift.js';
import type { Tick } from './tally.js';

export interface OperatorCounts {
  readonly lost: number;
  readonly twice: number;
  /** Open ends: a delivery without exactly one row in `deliveries_state`, or one that says something else than its mark. */
  readonly unclear: number;
  readonly cancelled: number;
  readonly forced: number;
}

export interface OperatorReport extends OperatorCounts {
  readonly actions: Readonly<Record<string, number>>;
  readonly reads: number;
  readonly waits: number;
  readonly unanswered: number;
  readonly pausedSeconds: number;
  /** Answers without their row of the audit. */
  readonly unaudited: number;
  /** Effects of what was paused, and runs of a job that was. */
  readonly ranPaused: number;
  /** Rows that are parked, leased or paused when all was resumed. */
  readonly left: number;
  readonly surprises: number;
  /** What is wrong, for people. */
  readonly lines: readonly string[];
}

const pairs = [subscriptions.map(({ type }) => type), subscriptions.map(({ durable }) => durable)];

/** A claim that has begun with the pause still standing may take so long until it looks. */
const slackMs = 2_000;

export async function judgeShift(
  database: PatientPool,
  shift: Shift,
  ticks: readonly Tick[],
  pauses: readonly Absence[],
): Promise<OperatorReport> {
  const [counts] = await database.rows<OperatorCounts & { told: number; marks: number }>(endsSql(countsOf), pairs);
  if (!counts) throw new Error('the count returned no row');
  const { told, marks, ...rest } = counts;
  const unaudited = await auditGaps(database, shift);
  const ran = [...(await ranPaused(database, shift.paused)), ...ticksPaused(ticks, shift.paused, pauses)];
  const left = await database.rows<{ what: string }>(leftSql);
  const wrong = await database.rows(endsSql(wrongOf), pairs);
  // A handler that was interrupted ends as cancelled, and nobody was told.
  const untold =
    told <= marks && marks <= told + shift.aborted ? [] : [`${told} cancelled by what was told, ${marks} marks`];
  const actions: Record<string, number> = {};
  for (const { kind } of shift.answered) actions[kind] = (actions[kind] ?? 0) + 1;
  return {
    ...rest,
    actions,
    reads: shift.reads,
    waits: shift.waits,
    unanswered: shift.unanswered,
    pausedSeconds: Math.round(shift.paused.reduce((sum, { from, to }) => sum + to - from, 0) / 1_000),
    unaudited: unaudited.length,
    ranPaused: ran.length,
    left: left.length,
    surprises: shift.surprises.length + untold.length,
    lines: [...wrong, ...unaudited, ...ran, ...left].map((row) => JSON.stringify(row)).concat(shift.surprises, untold),
  };
}

export const mistakesOf = (report: OperatorReport): number =>
  report.lost + report.twice + report.unclear + report.unaudited + report.ranPaused + report.left + report.surprises;

/** Those by filter have a row a chunk, and none when nothing was done; the others have one. */
async function auditGaps(database: PatientPool, { answered }: Shift): Promise<unknown[]> {
  const rows = await database.rows<{ op: string; rows: number; count: number }>(auditSql);
  const audit = new Map(rows.map((row) => [row.op, row]));
  return answered.filter(({ op, kind, rows: told }) => {
    const { rows: n = 0, count = 0 } = audit.get(op) ?? {};
    return kind === 'retryMany' || kind === 'discard' ? count !== told : n !== told;
  });
}

async function ranPaused(database: PatientPool, paused: readonly PausedTime[]): Promise<unknown[]> {
  return database.rows(ranSql, [JSON.stringify(paused), slackMs]);
}

/** The clock of a run is its process's, so one that was stopped meanwhile proves nothing. */
function ticksPaused(ticks: readonly Tick[], paused: readonly PausedTime[], stops: readonly Absence[]): unknown[] {
  const jobs = paused.filter(({ kind }) => kind === 'job');
  return ticks.filter(
    ({ started, pid }) =>
      jobs.some(({ from, to }) => started > from + slackMs && started < to - slackMs) &&
      !stops.some((stop) => stop.pid === pid && stop.to > started - slackMs && stop.from < started),
  );
}

const auditSql = `
SELECT why AS op, count(*)::int AS rows, coalesce(sum((what ->> 'count')::int), 0)::int AS count FROM outbox.audit WHERE why IS NOT NULL GROUP BY why`;

/** An effect began with its transaction, before its claim looked for pauses. */
const ranSql = `
SELECT p.kind, p.name, e.durable, e.event_id, e.began, p.from, p.to FROM (
  SELECT j ->> 'kind' AS kind, j ->> 'name' AS name, to_timestamp((j ->> 'from')::float8 / 1000) AS from, to_timestamp((j ->> 'to')::float8 / 1000) AS to
  FROM jsonb_array_elements($1::jsonb) j) p
JOIN effects e ON e.began > p.from AND e.began < p.to - $2::int * interval '1 millisecond' JOIN outbox.events v ON v.id = e.event_id
WHERE CASE p.kind WHEN 'durable' THEN e.durable = p.name WHEN 'tenant' THEN v.tenant_id = p.name WHEN 'type' THEN v.type LIKE replace(p.name, '*', '%') ELSE false END
LIMIT 20`;

const leftSql = `
SELECT 'pause ' || name AS what FROM outbox.pauses_active UNION ALL SELECT 'row ' || event_id || ' leased ' || lease FROM outbox.deliveries WHERE lease IS NOT NULL
UNION ALL SELECT 'queued ' || event_id FROM outbox.queue UNION ALL SELECT 'state ' || event_id || ' ' || state FROM outbox.deliveries_state WHERE state IN ('pending', 'running', 'retryable')
LIMIT 20`;

/**
 * Each delivery has ended once, and once more each time that it was sent by force. What it ended in before is in the
 * reason of the audit, so the effects that it may have are known.
 */
const endsSql = (select: string): string => `
WITH f AS MATERIALIZED (SELECT what ->> 'event' AS event_id, what ->> 'durable' AS durable, count(*) FILTER (WHERE why LIKE '% from completed')::int AS effects,
    count(*) FILTER (WHERE why LIKE '% from cancelled')::int AS cancels FROM outbox.audit WHERE action = 'send' AND (what ->> 'force')::boolean GROUP BY 1, 2),
x AS MATERIALIZED (SELECT n.event_id, n.how, s.durable, coalesce(f.effects, 0) AS forced, coalesce(f.cancels, 0) AS uncancelled,
    (SELECT h.verdict FROM outbox.handled h JOIN outbox.durables d ON d.id = h.durable WHERE h.event_id = n.event_id AND d.name = s.durable)::text AS verdict,
    (SELECT count(*)::int FROM effects e WHERE e.event_id = n.event_id AND e.durable = s.durable) AS effects,
    (SELECT json_agg(v.state) FROM outbox.deliveries_state v WHERE v.event_id = n.event_id AND v.durable = s.durable)::text AS states
  FROM notes n JOIN unnest($1::text[], $2::text[]) s(type, durable) ON s.type = n.type
  LEFT JOIN f ON f.event_id = n.event_id::text AND f.durable = s.durable),
y AS (SELECT x.*, forced + CASE WHEN verdict = 'd' THEN 1 ELSE 0 END AS due,
    states IS DISTINCT FROM '["' || CASE verdict WHEN 'd' THEN 'completed' WHEN 'x' THEN 'discarded' WHEN 'c' THEN 'cancelled' END || '"]' AS unclear FROM x)
${select}`;

const countsOf = `
SELECT (count(*) FILTER (WHERE verdict IS NULL OR effects < due))::int AS lost, coalesce(sum(greatest(effects - due, 0)), 0)::int AS twice,
  (count(*) FILTER (WHERE unclear))::int AS unclear, (count(*) FILTER (WHERE verdict = 'c'))::int AS cancelled, (SELECT count(*)::int FROM outbox.audit WHERE action = 'send') AS forced,
  ((SELECT coalesce(sum((what ->> 'cancelled')::int), 0) FROM outbox.audit WHERE action = 'cancel') + (SELECT coalesce(sum(cancelled), 0) FROM cancellations))::int AS told,
  (count(*) FILTER (WHERE verdict = 'c') + coalesce(sum(uncancelled), 0))::int AS marks FROM y`;

const wrongOf = `
SELECT y.*, (SELECT json_agg(e) FROM effects e WHERE e.event_id = y.event_id AND e.durable = y.durable) AS ran,
  (SELECT json_agg(a) FROM outbox.audit a WHERE a.what ->> 'event' = y.event_id::text OR a.what ->> 'id' = y.event_id::text OR a.what -> 'deliveries' -> y.durable ? y.event_id::text) AS audit,
  (SELECT json_agg(h) FROM outbox.handled h WHERE h.event_id = y.event_id) AS marks
FROM y WHERE verdict IS NULL OR effects <> due OR unclear LIMIT 20`;

/** Deliveries without a verdict yet: what waits with a broker is in no table. Parameters: types and durables. */
export async function open(database: PatientPool): Promise<number> {
  const [row] = await database.rows<{ open: number }>(
    `SELECT count(*)::int AS open FROM notes n JOIN unnest($1::text[], $2::text[]) s(type, durable) ON s.type = n.type JOIN outbox.durables d ON d.name = s.durable
     WHERE NOT EXISTS (SELECT 1 FROM outbox.handled h WHERE h.event_id = n.event_id AND h.durable = d.id)`,
    pairs,
  );
  return row?.open ?? 0;
}
