import { setTimeout as pause } from 'node:timers/promises';
import { type ManyReport, OutboxInspector, type RowOutcome } from 'nestjs-outbox';
import { eventually, reaches } from '../support/eventually.js';
import { writeLetters } from '../support/letters.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const paid = 'test.invoice.paid';
const voided = 'test.invoice.voided';
const sent = 'test.mail.sent';
const manifest = { emits: [paid, voided, sent] };

const counts = ({ matched, done, unchanged, failed }: ManyReport) => ({ matched, done, unchanged, failed });

describe('actions by filter', () => {
  const stage = useStage();
  let app: TestApp;
  let inspector: OutboxInspector;

  beforeAll(async () => {
    app = await stage.boot({
      manifest,
      providers: [
        subscriber([paid, voided] as never, 'ledger', (e, c) => effect(e, c)),
        subscriber(sent, 'mailer', (e, c) => effect(e, c)),
      ],
    });
    inspector = app.app.get(OutboxInspector);
  });

  afterEach(async () => {
    await stage.database.query('DROP FUNCTION IF EXISTS poison() CASCADE');
    await stage.database.query(
      `UPDATE outbox.dead_letters SET resolved_at = now(), resolution = 'after the test' WHERE resolved_at IS NULL`,
    );
    await stage.database.query('DELETE FROM outbox.audit');
  });

  const open = () =>
    stage.database.value<number>('SELECT count(*)::int FROM outbox.dead_letters WHERE resolved_at IS NULL');
  const ran = (ids: readonly string[]) =>
    stage.database.value<number>('SELECT count(DISTINCT event_id)::int FROM effects WHERE event_id = ANY ($1)', [ids]);

  it('retry ten thousand dead letters while the system works; those that cannot run stop nothing', async () => {
    const ids = await writeLetters(stage.database, { durable: 'ledger', type: paid, count: 10_000 });
    const gone = ids[4_321] ?? '';
    const poison = ids[7_777] ?? '';
    const named = ids[1_234] ?? '';
    await stage.database.query('DELETE FROM outbox.events WHERE id = $1', [gone]);
    await stage.database.query(`UPDATE outbox.dead_letters SET durable = 'long-gone' WHERE event_id = $1`, [named]);
    // A row at which every statement that touches it fails.
    await stage.database.query(`CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.event_id = '${poison}' THEN RAISE 'this row cannot be read'; END IF; RETURN NEW; END $$`);
    await stage.database.query(
      'CREATE TRIGGER poison BEFORE UPDATE ON outbox.dead_letters FOR EACH ROW EXECUTE FUNCTION poison()',
    );
    let working = true;
    const others: string[] = [];
    const work = (async () => {
      for (; working; await pause(10)) others.push((await app.publisher.publishNow(sent, {})).id);
    })();
    const seen: RowOutcome[] = [];
    const totals: number[] = [];
    const report = await inspector.retryMany(
      { type: 'test.*.paid', error: 'BROKEN' },
      {
        by: 'ann',
        reason: 'fixed in 1.2',
        onRow: (row, { matched }) => {
          seen.push(row);
          totals.push(matched);
        },
      },
    );
    working = false;
    await work;
    expect(counts(report)).toEqual({ matched: 10_000, done: 9_997, unchanged: 0, failed: 3 });
    expect(seen).toEqual(report.rows);
    expect(totals).toEqual(Array.from({ length: 10_000 }, (_, n) => n + 1));
    const failed = Object.fromEntries(
      report.rows.filter(({ outcome }) => outcome === 'failed').map(({ eventId, detail }) => [eventId, detail]),
    );
    expect(failed).toEqual({
      [gone]: expect.stringContaining('forgotten'),
      [poison]: 'this row cannot be read',
      [named]: expect.stringContaining("no durable 'long-gone'"),
    });
    await reaches('retried ones that ran', 9_997, () => ran(ids));
    await reaches('others that ran', others.length, () => ran(others));
    expect(others.length).toBeGreaterThan(0);
    expect(await open()).toBe(3);
    await stage.database.query('DROP FUNCTION poison() CASCADE');

    // The three remain, and are closed.
    expect(counts(await inspector.discard({ eventId: gone }, { by: 'ann' }))).toMatchObject({ done: 1 });
    const audit = await stage.database.query<{ who: string; why: string; filter: unknown; n: number; ids: number }>(
      `SELECT who, why, what->'filter' AS filter, sum((what->>'count')::int)::int AS n, sum(jsonb_array_length(what->'deliveries'->'ledger'))::int AS ids
       FROM outbox.audit WHERE action = 'retry' GROUP BY 1, 2, 3`,
    );
    expect(audit).toEqual([
      { who: 'ann', why: 'fixed in 1.2', filter: { type: 'test.*.paid', error: 'BROKEN' }, n: 9_997, ids: 9_997 },
    ]);
  }, 400_000);

  it('two operators at once: one wins each row', async () => {
    const ids = await writeLetters(stage.database, { durable: 'ledger', type: paid, count: 3_000 });
    const [ann, bob] = await Promise.all(
      ['ann', 'bob'].map((by) => inspector.retryMany({ durable: 'ledger' }, { by })),
    );
    await reaches('all ran', 3_000, () => ran(ids));
    expect((ann?.done ?? 0) + (bob?.done ?? 0)).toBe(3_000);
    expect([ann?.failed, bob?.failed]).toEqual([0, 0]);
    const winners = [ann, bob].flatMap((report) =>
      (report?.rows ?? []).filter(({ outcome }) => outcome === 'done').map(({ eventId }) => eventId),
    );
    expect(new Set(winners).size).toBe(3_000);
    expect(await stage.database.value(`SELECT count(*)::int FROM effects WHERE event_id = ANY ($1)`, [ids])).toBe(
      3_000,
    );
    const audited = await stage.database.query(
      `SELECT who, sum((what->>'count')::int)::int AS n FROM outbox.audit GROUP BY who ORDER BY who`,
    );
    expect(audited).toEqual(
      [
        { who: 'ann', n: ann?.done },
        { who: 'bob', n: bob?.done },
      ].filter(({ n }) => n),
    );
  });

  it('one retries and one discards: each row is one’s', async () => {
    const ids = await writeLetters(stage.database, { durable: 'ledger', type: paid, count: 2_000 });
    const [retried, discarded] = await Promise.all([
      inspector.retryMany({ durable: 'ledger' }),
      inspector.discard({ durable: 'ledger' }),
    ]);
    expect(retried.done + discarded.done).toBe(2_000);
    expect(retried.failed + discarded.failed).toBe(0);
    await reaches('those that were retried ran', retried.done, () => ran(ids));
  });

  it('a dry run says what would be done, and changes nothing', async () => {
    const ids = await writeLetters(stage.database, { durable: 'ledger', type: paid, count: 700 });
    await stage.database.query('DELETE FROM outbox.events WHERE id = $1', [ids[600]]);
    const report = await inspector.retryMany({ type: paid }, { dryRun: true });
    expect({ ...counts(report), dryRun: report.dryRun }).toEqual({
      ...{ matched: 700, done: 699, unchanged: 0, failed: 1 },
      dryRun: true,
    });
    expect(counts(await inspector.discard({ type: paid }, { dryRun: true }))).toMatchObject({
      matched: 700,
      done: 700,
    });
    expect(await open()).toBe(700);
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.audit')).toBe(0);
  });

  it('takes all that a filter says, and no more', async () => {
    const write = (letters: Partial<Parameters<typeof writeLetters>[1]>) =>
      writeLetters(stage.database, { durable: 'ledger', type: paid, count: 1, ...letters });
    await stage.database.query(`UPDATE outbox.durables SET formerly = '{books}' WHERE name = 'ledger'`);
    const [plain] = await write({});
    const [tenant] = await write({ tenantId: 'acme' });
    const [subject] = await write({ subject: 'inv-1' });
    const [other] = await write({ type: voided, error: 'ECONNREFUSED 10.0.0.1 100%_' });
    const [former] = await write({ durable: 'books' });
    const [old] = await write({ age: '3 hours' });
    const mailed = await write({ durable: 'mailer', type: sent });
    const found = async (filter: Parameters<OutboxInspector['discard']>[0]) =>
      (await inspector.discard(filter, { dryRun: true })).rows.map(({ eventId }) => eventId).sort();
    const hour = new Date(Date.now() - 3_600_000);
    expect(await found({ tenantId: 'acme' })).toEqual([tenant]);
    expect(await found({ subject: 'inv-1' })).toEqual([subject]);
    expect(await found({ type: 'test.*.voided' })).toEqual([other]);
    expect(await found({ error: 'econnrefused' })).toEqual([other]);
    expect(await found({ error: '%_' })).toEqual([other]);
    expect(await found({ eventId: plain ?? '' })).toEqual([plain]);
    expect(await found({ to: hour })).toEqual([old]);
    expect(await found({ from: hour, type: paid, durable: 'ledger' })).toEqual([plain, tenant, subject, former].sort());
    expect(await found({ durable: 'books', from: hour, type: paid })).toEqual([plain, tenant, subject, former].sort());
    expect(await found({ durable: 'mailer' })).toEqual(mailed);
    expect(await found({ durable: 'nobody' })).toEqual([]);
    expect(await found({})).toHaveLength(7);
    expect(counts(await inspector.retryMany({ durable: 'ledger', from: hour, type: paid }))).toMatchObject({ done: 4 });
    await reaches('the one under its former name ran as well', 1, () => ran([former ?? '']));
    await stage.database.query(`UPDATE outbox.durables SET formerly = '{}' WHERE name = 'ledger'`);
  });

  it('ends at its limit, and at the operator’s wish between two chunks', async () => {
    await writeLetters(stage.database, { durable: 'ledger', type: paid, count: 1_200 });
    expect(counts(await inspector.discard({}, { limit: 700 }))).toMatchObject({ matched: 700, done: 700 });
    const stop = new AbortController();
    const report = await inspector.discard({ type: paid }, { signal: stop.signal, onRow: () => stop.abort() });
    expect(report.done).toBeGreaterThan(0);
    expect(report.done).toBeLessThan(500 + 1);
    expect(await open()).toBe(500 - report.done);
  });

  it('retries what waits on its ladder when it is asked to, and leaves what was never tried', async () => {
    await inspector.pause({ durable: 'ledger' });
    const row = (attempt: number, due: string) =>
      stage.database.value<string>(
        `WITH e AS (INSERT INTO outbox.events (bucket, id, type, payload) SELECT outbox.bucket(id), id, $1, '{}' FROM (SELECT outbox.uuid7(now() - interval '1 minute') AS id OFFSET 0) x RETURNING id)
         INSERT INTO outbox.deliveries (event_id, durable, attempt, due_at, last_error) SELECT e.id, d.id, $2::smallint, now() + $3::interval, 'timed out' FROM e, outbox.durables d WHERE d.name = 'ledger' RETURNING event_id`,
        [paid, attempt, due],
      );
    const waiting = await row(3, '1 hour');
    const fresh = await row(0, '1 hour');
    const report = await inspector.retryMany({ state: 'retryable', error: 'timed' });
    expect(report.rows).toEqual([{ eventId: waiting, durable: 'ledger', outcome: 'done', detail: null }]);
    await eventually('it is due', () =>
      stage.database.value<boolean>('SELECT due_at <= clock_timestamp() FROM outbox.deliveries WHERE event_id = $1', [
        waiting,
      ]),
    );
    await inspector.resume({ durable: 'ledger' });
    await reaches('it ran', 1, () => ran([waiting]));
    expect(await ran([fresh])).toBe(0);
    await stage.database.query('DELETE FROM outbox.deliveries WHERE event_id = $1', [fresh]);
  });

  it('refuses what it cannot do: other states, types that are none, ids that are none', async () => {
    for (const wrong of [
      inspector.retryMany({ state: 'completed' }),
      inspector.discard({ state: ['discarded', 'pending'] }),
      inspector.retryMany({ type: 'paid' }),
      inspector.retryMany({ eventId: '42' }),
      inspector.discard({ error: 'a\0b' }),
      // A misspelt key would leave a filter that takes all there is.
      inspector.discard({ tenant: 'acme' } as never),
      inspector.discard({ from: new Date(Number.NaN) }),
    ])
      await expect(wrong).rejects.toMatchObject({ code: 'OUTBOX_INVALID_QUERY' });
  });
});
