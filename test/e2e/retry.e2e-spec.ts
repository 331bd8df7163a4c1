import { SnoozeError } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

interface Seen {
  readonly eventId: string;
  readonly attempt: number;
  readonly isLastAttempt: boolean;
  readonly idempotencyKey: string;
}

interface Waiting {
  readonly attempt: number;
  readonly interruptions: number;
  readonly snoozes: number;
  readonly last_error: string;
  /** From the recording of the failure to the due time. */
  readonly in_ms: number;
}

const type = (name: string) => `test.${name}.asked`;
const ladderMs = [2_000, 10_000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000, 10_800_000, 21_600_000];

/** An error with an SQLSTATE, as node-postgres throws it and TypeORM wraps it. */
const conflict = () => Object.assign(new Error('query failed'), { driverError: { code: '40001' } });

describe('a failing handler sees the event again, slower each time, and others do not wait for it', () => {
  const stage = useStage();
  const seen: Seen[] = [];
  const backoffCalls: [number, string][] = [];
  let app: TestApp;

  beforeAll(async () => {
    const fails = (durable: string, options: Parameters<typeof subscriber>[3]) =>
      subscriber(
        type(durable),
        durable,
        async (event, context) => {
          const { attempt, isLastAttempt, idempotencyKey } = context;
          seen.push({ eventId: event.id, attempt, isLastAttempt, idempotencyKey });
          await effect(event, context);
          throw new Error(`failure ${attempt}`);
        },
        options,
      );
    app = await stage.boot({
      providers: [
        fails('ladder', {}),
        fails('steps', { backoff: ['10ms', '400ms', '5m'], maxAttempts: 4 }),
        fails('formula', {
          backoff: (attempt, error) => {
            backoffCalls.push([attempt, (error as Error).message]);
            return attempt === 1 ? '10ms' : '7m';
          },
        }),
        fails('broken', {
          backoff: () => {
            throw new Error('no backoff today');
          },
        }),
        fails('many', { backoff: ['1h'] }),
        subscriber<{ fails: number }>(
          type('recovers'),
          'recovers',
          async (event, context) => {
            await effect(event, context, `attempt ${context.attempt}`);
            if (context.attempt <= event.payload.fails) throw new Error('not yet');
          },
          { backoff: ['10ms'] },
        ),
        subscriber<{ snoozes: number }>(type('sleepy'), 'sleepy', async (event, context) => {
          const { attempt, isLastAttempt, idempotencyKey } = context;
          const before = seen.filter((s) => s.eventId === event.id).length;
          seen.push({ eventId: event.id, attempt, isLastAttempt, idempotencyKey });
          await effect(event, context);
          if (before < event.payload.snoozes)
            throw new SnoozeError(before === 0 ? '100ms' : '20m', 'the bank is closed');
        }),
        subscriber<{ conflicts: number }>(type('conflicting'), 'conflicting', async (event, context) => {
          const { attempt, isLastAttempt, idempotencyKey } = context;
          const before = seen.filter((s) => s.eventId === event.id).length;
          seen.push({ eventId: event.id, attempt, isLastAttempt, idempotencyKey });
          await effect(event, context);
          if (before < event.payload.conflicts) throw conflict();
        }),
        subscriber(type('untidy'), 'untidy', async (_event, context) => {
          // Left open and not awaited: what is recorded is recorded after a ROLLBACK.
          void context.manager.transaction(() => new Promise(() => {})).catch(() => {});
          await context.manager.query('SELECT 1');
          throw new SnoozeError('20m', 'later');
        }),
        subscriber(type('healthy'), 'healthy', (event, context) => effect(event, context)),
      ],
      manifest: {
        emits: [
          'ladder',
          'steps',
          'formula',
          'broken',
          'many',
          'recovers',
          'sleepy',
          'conflicting',
          'untidy',
          'healthy',
        ].map(type),
      },
      outbox: { relay: { poll: '50ms' } },
    });
  });

  const publish = async (name: string, payload: unknown = {}) =>
    (await app.publisher.publishNow(type(name), payload)).id;
  const attemptsSeen = (id: string) => seen.filter((s) => s.eventId === id).map((s) => s.attempt);
  const effects = (id: string) =>
    stage.database.value<number>('SELECT count(*)::int FROM effects WHERE event_id = $1', [id]);
  const recorded = (id: string) =>
    stage.database.query<{ n: number; error: string; in_ms: number | null }>(
      `SELECT n, split_part(error, E'\\n', 1) AS error, extract(epoch FROM next_at - failed_at)::float * 1000 AS in_ms
       FROM outbox.attempts WHERE event_id = $1 ORDER BY n`,
      [id],
    );
  /** The deliveries row once `attempt` has failed. */
  const waiting = (id: string, attempt: number) =>
    eventually(`attempt ${attempt} of ${id} is recorded`, async () => {
      const [row] = await stage.database.query<Waiting>(
        `SELECT d.attempt, d.interruptions, d.snoozes, split_part(d.last_error, E'\\n', 1) AS last_error,
           extract(epoch FROM d.due_at - (SELECT max(a.failed_at) FROM outbox.attempts a WHERE a.event_id = d.event_id))::float * 1000 AS in_ms
         FROM outbox.deliveries d WHERE d.event_id = $1 AND d.lease IS NULL AND d.attempt = $2`,
        [id, attempt],
      );
      return row;
    });
  const makeDue = (id: string) =>
    stage.database.query('UPDATE outbox.deliveries SET due_at = now() WHERE event_id = $1', [id]);
  /** What may be between the clock readings for two rows of one statement, on a busy machine. */
  const twoRowsMs = 500;
  /** Within the jitter of 10 %, and a little for two clock readings for one row. */
  const expectAbout = (milliseconds: number, expected: number, apartMs = 50) => {
    expect(milliseconds).toBeGreaterThanOrEqual(expected * 0.9 - apartMs);
    expect(milliseconds).toBeLessThanOrEqual(expected * 1.1 + apartMs);
  };

  it('attempt by attempt along the ladder, to the tenth and last', async () => {
    const id = await publish('ladder');
    for (const [i, step] of ladderMs.entries()) {
      const row = await waiting(id, i + 1);
      expect(row).toMatchObject({ interruptions: 0, snoozes: 0, last_error: `Error: failure ${i + 1}` });
      expectAbout(row.in_ms, step, twoRowsMs);
      await makeDue(id);
    }
    await eventually('the tenth failure is the last', () =>
      stage.database.value<boolean>('SELECT EXISTS (SELECT 1 FROM outbox.dead_letters WHERE event_id = $1)', [id]),
    );
    const own = seen.filter((s) => s.eventId === id);
    expect(own.map((s) => s.attempt)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(own.map((s) => s.isLastAttempt)).toEqual([...ladderMs.map(() => false), true]);
    expect(new Set(own.map((s) => s.idempotencyKey))).toEqual(new Set([`${id}:ladder`]));
    const history = await recorded(id);
    expect(history.map(({ n, error }) => [n, error])).toEqual(
      own.map((s) => [s.attempt, `Error: failure ${s.attempt}`]),
    );
    for (const [i, step] of ladderMs.entries()) expectAbout(history[i]?.in_ms ?? 0, step);
    expect(history[9]?.in_ms).toBeNull();
    // What each attempt wrote went with it.
    expect(await effects(id)).toBe(0);
  });

  it('delays of many events differ, so that they do not come back together', async () => {
    const list = Array.from({ length: 40 }, () => ({ event: type('ladder'), payload: {} }));
    const published = await app.dataSource.transaction(() => app.publisher.publishMany(list));
    const rows = await eventually('all have failed once', async () => {
      const found = await stage.database.query<{ in_ms: number }>(
        `SELECT extract(epoch FROM next_at - failed_at)::float * 1000 AS in_ms FROM outbox.attempts WHERE event_id = ANY ($1) AND n = 1`,
        [published.map((p) => p.id)],
      );
      return found.length === 40 && found;
    });
    for (const row of rows) expectAbout(row.in_ms, 2_000);
    expect(new Set(rows.map((row) => Math.round(row.in_ms))).size).toBeGreaterThan(10);
    await stage.database.query('DELETE FROM outbox.deliveries WHERE event_id = ANY ($1)', [published.map((p) => p.id)]);
  });

  it('with steps of its own, the last of which serves for all that follow', async () => {
    const id = await publish('steps');
    const third = await waiting(id, 3);
    expectAbout(third.in_ms, 300_000, twoRowsMs);
    const history = await recorded(id);
    expectAbout(history[1]?.in_ms ?? 0, 400);
    await makeDue(id);
    await eventually('the fourth of four', () =>
      stage.database.value<boolean>('SELECT EXISTS (SELECT 1 FROM outbox.dead_letters WHERE event_id = $1)', [id]),
    );
    expect(seen.filter((s) => s.eventId === id).map((s) => s.isLastAttempt)).toEqual([false, false, false, true]);
  });

  it('with a function of the attempt and the error, taken at its word', async () => {
    const id = await publish('formula');
    const row = await waiting(id, 2);
    expect(Math.abs(row.in_ms - 420_000)).toBeLessThan(twoRowsMs);
    expect(backoffCalls).toEqual([
      [1, 'failure 1'],
      [2, 'failure 2'],
    ]);
  });

  it('a function that throws costs no attempt its record: the default ladder stands in', async () => {
    const id = await publish('broken');
    const row = await waiting(id, 1);
    expect(row.last_error).toBe('Error: failure 1');
    expectAbout(row.in_ms, 2_000, twoRowsMs);
  });

  it('only the attempt that succeeds leaves its effects', async () => {
    const id = await publish('recovers', { fails: 2 });
    await eventually('it succeeds', () => effects(id));
    expect(await stage.database.query('SELECT note FROM effects WHERE event_id = $1', [id])).toEqual([
      { note: 'attempt 3' },
    ]);
    expect((await recorded(id)).map(({ n }) => n)).toEqual([1, 2]);
    expect(
      await stage.database.query('SELECT verdict, attempts FROM outbox.handled WHERE event_id = $1', [id]),
    ).toEqual([{ verdict: 'd', attempts: 3 }]);
  });

  it('SnoozeError: it comes back after its delay, and no attempt is used up', async () => {
    const id = await publish('sleepy', { snoozes: 2 });
    const row = await eventually('the second snooze', async () => {
      const [found] = await stage.database.query<Waiting>(
        `SELECT attempt, interruptions, snoozes, split_part(last_error, E'\\n', 1) AS last_error,
           extract(epoch FROM due_at - now())::float * 1000 AS in_ms
         FROM outbox.deliveries WHERE event_id = $1 AND snoozes = 2`,
        [id],
      );
      return found;
    });
    expect(row).toMatchObject({ attempt: 0, interruptions: 0, last_error: 'SnoozeError: the bank is closed' });
    expect(row.in_ms).toBeGreaterThan(1_100_000);
    expect(row.in_ms).toBeLessThanOrEqual(1_200_000);
    await makeDue(id);
    await eventually('it is handled', () => effects(id));
    expect(attemptsSeen(id)).toEqual([1, 1, 1]);
    expect(await recorded(id)).toEqual([]);
    expect(await effects(id)).toBe(1);
  });

  it('a serialization failure is tried again at once and charged to nobody', async () => {
    const id = await publish('conflicting', { conflicts: 5 });
    await eventually('it is handled', () => effects(id));
    expect(attemptsSeen(id)).toEqual([1, 1, 1, 1, 1, 1]);
    expect(await recorded(id)).toEqual([]);
    expect(
      await stage.database.query('SELECT verdict, attempts FROM outbox.handled WHERE event_id = $1', [id]),
    ).toEqual([{ verdict: 'd', attempts: 1 }]);
    expect(await effects(id)).toBe(1);
  });

  it('but only five times: the sixth in a row is a failed attempt', async () => {
    const id = await publish('conflicting', { conflicts: 6 });
    const row = await waiting(id, 1);
    expectAbout(row.in_ms, 2_000, twoRowsMs);
    expect(attemptsSeen(id)).toEqual([1, 1, 1, 1, 1, 1]);
    expect(await recorded(id)).toHaveLength(1);
    await makeDue(id);
    await eventually('it is handled', () => effects(id));
    expect(attemptsSeen(id)).toEqual([1, 1, 1, 1, 1, 1, 2]);
  });

  it('hundreds of failing events do not hold up the healthy ones', async () => {
    const failing = Array.from({ length: 300 }, () => ({ event: type('many'), payload: {} }));
    const healthy = Array.from({ length: 20 }, () => ({ event: type('healthy'), payload: {} }));
    const published = await app.dataSource.transaction(() => app.publisher.publishMany([...failing, ...healthy]));
    const ids = published.map((p) => p.id);
    await eventually('the healthy ones are done and the others wait', () =>
      stage.database.value<boolean>(
        `SELECT (SELECT count(*) FROM effects WHERE event_id = ANY ($1)) = 20
           AND (SELECT count(*) FROM outbox.deliveries WHERE event_id = ANY ($1) AND due_at > now() AND attempt = 1) = 300`,
        [ids],
      ),
    );
    // With all of them waiting for their second attempt, a new healthy one goes straight through.
    const id = await publish('healthy');
    await eventually('a later one', () => effects(id));
    expect(
      await stage.database.value('SELECT count(*)::int FROM outbox.attempts WHERE event_id = ANY ($1)', [ids]),
    ).toBe(300);
  });

  it('a snooze is counted also when the transaction could not be kept', async () => {
    const id = await publish('untidy');
    await eventually('it is snoozed', async () => {
      const [row] = await stage.database.query('SELECT snoozes, attempt FROM outbox.deliveries WHERE event_id = $1', [
        id,
      ]);
      return row?.['snoozes'] === 1 && row['attempt'] === 0;
    });
  });
});
