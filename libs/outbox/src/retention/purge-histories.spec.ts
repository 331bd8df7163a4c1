import fc from 'fast-check';
import { DataSource } from 'typeorm';
import { forAll } from '../../../../test/support/for-all.js';
import { Past } from '../../../../test/support/past.js';
import { CapturedLog } from '../../../../test/support/test-app.js';
import { createDatabase, type TestDatabase } from '../../../../test/support/test-database.js';
import { databaseTrouble } from '../core/database-errors.js';
import { Database } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import { outboxSchema } from '../tables/schema/outbox-schema.js';
import { bucketOf } from '../tables/schema/schema-versions.js';
import { begin, commit, rollback, rollbackToSavepoint, savepoint } from '../tables/wire/control.js';
import { statement } from '../tables/wire/statement.js';
import { Purge } from './purge.js';
import { purgeLimits } from './purge-limits.js';

const type = 'test.history.written';
const dayMs = 86_400_000;
/** Old, and the newer day of the same bucket; another old one; days within the window of a day have ids of yesterday. */
const days = [11, 11, 1, 5] as const;
const [ledger, mail, archive] = [1, 2, 3] as const;
const worker = 7;

const outcomes = ['done', 'done', 'done', 'fail', 'dead', 'snooze', 'crash'] as const;
type Outcome = (typeof outcomes)[number];
interface Work {
  readonly durable: number;
  readonly outcome: Outcome;
}
type Step =
  | { readonly do: 'publish'; readonly day: number; readonly count: number; readonly relayed: boolean }
  | { readonly do: 'relay' | 'register' | 'purge' | 'half a purge' | 'ladder' }
  | { readonly do: 'backfill'; readonly chunk: number }
  | { readonly do: 'handle'; readonly works: readonly Work[] }
  | { readonly do: 'hold'; readonly work: Work }
  | { readonly do: 'let go' }
  | { readonly do: 'retry'; readonly n: number }
  | {
      readonly do: 'all at once';
      readonly works: readonly Work[];
      readonly again: readonly number[];
      readonly retry: number;
    };

const just = <const T extends Step['do']>(name: T) => fc.constant({ do: name } as const);
const work: fc.Arbitrary<Work> = fc.record({
  durable: fc.constantFrom(ledger, mail, archive),
  outcome: fc.constantFrom(...outcomes),
});
const weigh = (weight: number, arbitrary: fc.Arbitrary<Step>) => ({ weight, arbitrary });
const step: fc.Arbitrary<Step> = fc.oneof(
  weigh(
    5,
    fc.record({
      do: fc.constant('publish' as const),
      day: fc.constantFrom(...days),
      count: fc.integer({ min: 1, max: 4 }),
      relayed: fc.constantFrom(true, true, false),
    }),
  ),
  weigh(8, fc.record({ do: fc.constant('handle' as const), works: fc.array(work, { minLength: 1, maxLength: 8 }) })),
  weigh(3, fc.record({ do: fc.constant('hold' as const), work })),
  weigh(1, just('let go')),
  weigh(3, just('purge')),
  weigh(1, just('half a purge')),
  weigh(1, just('relay')),
  weigh(2, just('register')),
  weigh(1, just('ladder')),
  weigh(1, fc.record({ do: fc.constant('backfill' as const), chunk: fc.integer({ min: 1, max: 5 }) })),
  weigh(1, fc.record({ do: fc.constant('retry' as const), n: fc.nat(20) })),
  weigh(
    3,
    fc.record({
      do: fc.constant('all at once' as const),
      works: fc.array(work, { maxLength: 3 }),
      again: fc.array(fc.nat(50), { minLength: 1, maxLength: 2 }),
      retry: fc.nat(20),
    }),
  ),
);

/** One old event is done, of another a handler runs and meets a purge. */
const heldOpen: readonly Step[] = [
  { do: 'publish', day: 11, count: 2, relayed: true },
  { do: 'handle', works: [ledger, mail].map((durable) => ({ durable, outcome: 'done' })) },
  { do: 'hold', work: { durable: ledger, outcome: 'done' } },
  { do: 'purge' },
];

/** What must be true of one history's deliveries, keyed 'event durable'. */
class Model {
  /** The durables that are to handle an event. */
  readonly covered = new Map<string, Set<number>>();
  readonly finished = new Map<string, 'd' | 'x'>();
  readonly attempts = new Map<string, number>();
  /** Durables that handled an event, each as often as they did. */
  readonly effects: string[] = [];
  registered = false;

  get ids(): string[] {
    return [...this.covered.keys()];
  }

  unfinished(id: string): number[] {
    return [...(this.covered.get(id) ?? [])].filter((durable) => !this.finished.has(`${id} ${durable}`));
  }
}

/** Like `Promise.all`, but ends after the last: what goes on would meet the next history. */
async function everyOne(all: readonly Promise<unknown>[]): Promise<void> {
  const failed = (await Promise.allSettled(all)).find((result) => result.status === 'rejected');
  if (failed) throw failed.reason;
}

/** A claim that is open: the handler runs. */
interface Open {
  readonly session: InfrastructureConnection;
  readonly id: string;
  readonly durable: number;
  readonly attempt: number;
  readonly outcome: Outcome;
}

describe('whatever happens around a purge', () => {
  let database: TestDatabase;
  let source: DataSource;
  let tables: Database;
  const log = new CapturedLog();
  const sessions: InfrastructureConnection[] = [];
  const free: InfrastructureConnection[] = [];
  const seen = { races: 0, gone: 0, survived: 0, blocked: 0 };

  beforeAll(async () => {
    database = await createDatabase();
    source = await new DataSource({ type: 'postgres', url: database.url }).initialize();
    await outboxSchema.up(source);
    await database.query(`CREATE TABLE effects (event_id uuid, durable smallint)`);
    // Less than in earnest, so that a claim that is held open does not hold up the test.
    for (const name of ['forget_events', 'forget_marks'])
      await database.query(`ALTER FUNCTION outbox.${name} SET lock_timeout = '20ms'`);
    await database.query(`INSERT INTO outbox.durables (name) VALUES ('ledger'), ('mail'), ('archive')`);
    tables = new Database(source, 'outbox');
    for (let n = 0; n < 12; n++) sessions.push(tables.infrastructure(`session ${n}`, log, ['SET lock_timeout = 100']));
  });

  afterAll(async () => {
    for (const session of sessions) await session.close();
    await source.destroy();
    await database.drop();
  });

  const effect = statement('effect', 'INSERT INTO effects (event_id, durable) VALUES ($1::uuid, $2::smallint)');
  const busy = (error: unknown): boolean => ['busy', 'conflict'].includes(databaseTrouble(error));

  class History {
    readonly model = new Model();
    readonly open: Open[] = [];
    readonly past = new Past(database, type);

    async play(step: Step): Promise<void> {
      switch (step.do) {
        case 'publish':
          return this.publish(step.day, step.count, step.relayed);
        case 'relay':
          return this.relay();
        case 'register':
          return this.register();
        case 'backfill':
          return this.backfill(step.chunk);
        case 'handle':
          for (const work of step.works) await this.handle(work);
          return;
        case 'hold':
          if (this.open.length < 2) await this.begin(step.work);
          return;
        case 'let go':
          return this.end(this.open.shift());
        case 'ladder':
          await database.query('UPDATE outbox.deliveries SET due_at = clock_timestamp() WHERE lease IS NULL');
          return;
        case 'retry':
          return this.retry(step.n);
        case 'purge':
          return this.purge(this.open.length > 0 ? 1 : 1_000);
        case 'half a purge':
          return this.halfPurge();
        case 'all at once':
          seen.races += 1;
          await everyOne([
            this.purge(3),
            this.purge(3),
            this.retry(step.retry),
            ...step.works.map((work) => this.handle(work)),
            ...step.again.map((n) => this.again(n)),
            this.relay(),
            this.backfill(2),
          ]);
      }
    }

    async publish(day: number, count: number, relayed: boolean): Promise<void> {
      const ids = await this.past.events(day, count);
      await this.past.queued(ids);
      for (const id of ids)
        this.model.covered.set(id, new Set([ledger, mail, ...(this.model.registered ? [archive] : [])]));
      if (relayed) await this.relay();
    }

    relay(): Promise<void> {
      return this.with(async (session) => {
        await session.run(tables.queue.fanOutLock(), tables.queue.fanOut('-infinity', 500, null, [], [], '0 seconds'));
      });
    }

    /** `archive` comes late and wants everything that is there. */
    async register(): Promise<void> {
      if (this.model.registered) return;
      this.model.registered = true;
      await database.query(
        `INSERT INTO outbox.durable_types (durable, pattern, matcher, since, backfill_to) VALUES ($1, $2, $2, '-infinity', '00000000-0000-0000-0000-000000000000')`,
        [archive, type],
      );
      for (const id of await this.past.left(this.model.ids)) this.model.covered.get(id)?.add(archive);
    }

    backfill(chunk: number): Promise<void> {
      return this.with(async (session) => {
        await session.run(tables.durables.backfill([archive], chunk));
      });
    }

    async handle(work: Work): Promise<void> {
      await this.end(await this.begin(work, false));
    }

    /** Takes a delivery and claims it; what waits can be claimed, whatever has been purged. */
    async begin({ durable, outcome }: Work, held = true): Promise<Open | undefined> {
      const session = free.pop();
      if (!session) throw new Error('no session is free');
      const [{ rows }] = await session.run(tables.deliveries.take([durable], [1], worker, '-infinity'));
      const id = rows[0]?.event_id;
      if (id === undefined) return void free.push(session);
      try {
        const results = await session.run(begin, claimOf(id)(id, durable, worker), savepoint, effect(id, durable));
        const claim = results[1].rows[0];
        const again = this.model.finished.has(`${id} ${durable}`);
        expect({ id, durable, ...claim }).toMatchObject({ claimed: !again });
        if (again) {
          // Back-filled and handled while it was queued, and then the relay came.
          await session.run(rollbackToSavepoint, commit);
          return void free.push(session);
        }
        const open = { session, id, durable, attempt: (claim?.attempt ?? 0) + 1, outcome };
        if (held) this.open.push(open);
        return open;
      } catch (error) {
        if (!busy(error)) throw error;
        await session.run(rollback);
        await session.run(tables.deliveries.giveBack(worker, [id], [durable]));
        return void free.push(session);
      }
    }

    async end(open: Open | undefined): Promise<void> {
      if (!open) return;
      const { session, id, durable, attempt, outcome } = open;
      const { handled, deliveries } = tables;
      const [key, bucket] = [`${id} ${durable}`, bucketOf(id)];
      const record = (name: 'fail' | 'snooze' | 'dead', ...rest: (string | number)[]) => {
        const bind = handled[name][bucket];
        if (!bind) throw new Error(`no bucket ${bucket}`);
        return session.run(rollbackToSavepoint, bind(id, durable, ...rest), commit);
      };
      if (outcome === 'done') await session.run(commit);
      else if (outcome === 'fail') await record('fail', attempt, 'it failed', worker, '1 hour', 0, 0);
      else if (outcome === 'snooze') await record('snooze', attempt - 1, 'later', '1 hour', 0, 1);
      else if (outcome === 'dead') await record('dead', attempt, 'it failed', worker);
      else {
        await session.run(rollback);
        await session.run(deliveries.giveBack(worker, [id], [durable]));
      }
      if (outcome === 'done') this.model.effects.push(key);
      if (outcome === 'done' || outcome === 'dead') this.model.finished.set(key, outcome === 'done' ? 'd' : 'x');
      if (outcome === 'fail' || outcome === 'dead')
        this.model.attempts.set(key, (this.model.attempts.get(key) ?? 0) + 1);
      free.push(session);
    }

    /** An operator retries a dead letter: it succeeds exactly while the event is there. */
    async retry(n: number): Promise<void> {
      const dead = [...this.model.finished].filter(([, verdict]) => verdict === 'x').map(([key]) => key);
      const [id = '', durable = ''] = dead[n % Math.max(dead.length, 1)]?.split(' ') ?? [];
      if (id === '') return;
      const name = ['', 'ledger', 'mail', 'archive'][Number(durable)] ?? '';
      await this.with(async (session) => {
        const [{ rows }] = await session.run(tables.deadLetters.retry(id, name));
        if (rows.length > 0) this.model.finished.delete(`${id} ${durable}`);
      });
    }

    /** Somebody hands over, once more, what has been handled: a broker, or a row that came back. Nobody else sees that row. */
    async again(n: number): Promise<void> {
      const finished = [...this.model.finished].filter(([, verdict]) => verdict === 'd').map(([key]) => key);
      const [id = '', durable = ''] = finished[n % Math.max(finished.length, 1)]?.split(' ') ?? [];
      if (id === '') return;
      const row = statement(
        'again',
        'INSERT INTO outbox.deliveries (event_id, durable, lease) VALUES ($1::uuid, $2::smallint, 99) ON CONFLICT DO NOTHING',
      );
      await this.with(async (session) => {
        const results = await session.run(begin, row(id, durable), claimOf(id)(id, durable, 99)).catch((error) => {
          if (!busy(error)) throw error;
        });
        await session.run(rollback);
        if (results) expect({ id, durable, ...results[2].rows[0] }).toMatchObject({ claimed: false });
      });
    }

    async purge(tries: number): Promise<void> {
      const limits = { ...purgeLimits, tries, pauseMs: [1, 10] as const };
      const { left } = await new Purge(tables, { retentionMs: dayMs }, log, limits).run(new AbortController().signal);
      seen.blocked += left;
    }

    /** As a pass that died between events and marks. */
    halfPurge(): Promise<void> {
      return this.with(async (session) => {
        const [{ rows }] = await session.run(tables.retention.window('1 day'));
        for (const bucket of new Set(this.model.ids.map(bucketOf)))
          await session.run(tables.retention.forgetEvents(bucket, rows[0]?.before ?? '')).catch((error) => {
            if (!busy(error)) throw error;
          });
      });
    }

    async with(work: (session: InfrastructureConnection) => Promise<void>): Promise<void> {
      const session = free.pop();
      if (!session) throw new Error('no session is free');
      // What meets a handler's own row waits for its end: a fan-out or a back-fill that comes behind.
      await work(session).catch((error) => {
        if (!busy(error)) throw error;
      });
      free.push(session);
    }

    /** Everything that is left to do is done; nothing is left over. */
    async finish(): Promise<void> {
      while (this.open.length > 0) await this.end(this.open.shift());
      await this.relay();
      while (await database.value<boolean>('SELECT count(backfill_to) > 0 FROM outbox.durable_types'))
        await this.backfill(100);
      await this.play({ do: 'ladder' });
      for (const durable of [ledger, mail, archive])
        while (
          await database.value<boolean>('SELECT EXISTS (SELECT 1 FROM outbox.deliveries WHERE durable = $1)', [durable])
        )
          await this.handle({ durable, outcome: 'done' });
      await this.purge(1_000);
      await this.check();
      const { covered, effects, finished } = this.model;
      for (const [id, durables] of covered)
        for (const durable of durables)
          expect([`${id} ${durable}`, effects.filter((key) => key === `${id} ${durable}`).length]).toEqual([
            `${id} ${durable}`,
            finished.get(`${id} ${durable}`) === 'd' ? 1 : 0,
          ]);
      const old = `< outbox.uuid7_floor(date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '1 day')`;
      expect(
        await database.query(
          `SELECT id FROM outbox.events WHERE id ${old} UNION ALL SELECT event_id FROM outbox.handled WHERE event_id ${old}
           UNION ALL SELECT event_id FROM outbox.attempts WHERE event_id ${old}`,
        ),
      ).toEqual([]);
    }

    /** What must be true at every moment. */
    async check(): Promise<void> {
      const { model } = this;
      const [row] = await database.query<{
        events: string[] | null;
        marks: string[] | null;
        attempts: string[] | null;
        waiting: string[] | null;
        effects: string[] | null;
        todo: boolean;
      }>(
        `SELECT (SELECT array_agg(id::text) FROM outbox.events) AS events,
          (SELECT array_agg(event_id || ' ' || durable || ' ' || verdict::text) FROM outbox.handled) AS marks,
          (SELECT array_agg(event_id || ' ' || durable) FROM outbox.attempts) AS attempts,
          (SELECT array_agg(event_id || ' ' || durable) FROM (SELECT event_id, durable FROM outbox.deliveries UNION SELECT event_id, d FROM outbox.queue, unnest('{1,2,3}'::int[]) d) x) AS waiting,
          (SELECT array_agg(event_id || ' ' || durable) FROM effects) AS effects,
          EXISTS (SELECT 1 FROM outbox.durable_types WHERE backfill_to IS NOT NULL) AS todo`,
      );
      const here = new Set(row?.events ?? []);
      const waiting = new Set(row?.waiting ?? []);
      const ofThose = (keys: readonly string[]) => keys.filter((key) => here.has(key.slice(0, 36))).toSorted();
      // Every event that exists has its marks and its attempts, no more and no fewer.
      expect(ofThose(row?.marks ?? [])).toEqual(ofThose([...model.finished].map((entry) => entry.join(' '))));
      expect(ofThose(row?.attempts ?? [])).toEqual(
        ofThose([...model.attempts].flatMap(([key, n]) => Array.from({ length: n }, () => key))),
      );
      expect((row?.effects ?? []).toSorted()).toEqual(model.effects.toSorted());
      for (const id of model.ids) {
        const unfinished = model.unfinished(id);
        // What is not finished is there, and waits for whoever is to do it.
        if (unfinished.length > 0) expect([id, here.has(id)]).toEqual([id, true]);
        for (const durable of unfinished)
          expect([id, durable, waiting.has(`${id} ${durable}`) || (durable === archive && row?.todo)]).toEqual([
            id,
            durable,
            true,
          ]);
        if (here.has(id)) seen.survived += 1;
        else seen.gone += 1;
      }
    }
  }

  const claimOf = (id: string) => {
    const claim = tables.handled.claim[bucketOf(id)];
    if (!claim) throw new Error(`no claim for ${id}`);
    return claim;
  };

  it('nothing unfinished is removed, nothing that was handled can be claimed again, and every event that exists has its marks', async () => {
    await forAll(
      fc.tuple(fc.boolean(), fc.array(step, { minLength: 10, maxLength: 30, size: 'max' })),
      async ([held, steps]) => {
        free.splice(0, free.length, ...sessions);
        for (const table of [
          'outbox.events',
          'outbox.handled',
          'outbox.attempts',
          'outbox.queue',
          'outbox.deliveries',
          'outbox.dead_letters',
          'outbox.durable_types',
          'effects',
        ])
          await database.query(`DELETE FROM ${table}`);
        await database.query(
          `INSERT INTO outbox.durable_types (durable, pattern, matcher, since) VALUES ($1, $3, $3, '-infinity'), ($2, $3, $3, '-infinity')`,
          [ledger, mail, type],
        );
        const history = new History();
        try {
          for (const step of held ? [...heldOpen, ...steps] : steps) {
            await history.play(step);
            await history.check();
          }
          await history.finish();
        } finally {
          // After a failure a transaction may be open, and the next history of a shrink needs the sessions.
          for (const session of sessions) await session.run(rollback).catch(() => {});
        }
      },
      { runs: 500, withinMs: 25_000 },
    );
    // The histories were worth their name.
    expect(Object.entries(seen).filter(([, n]) => n === 0)).toEqual([]);
  });
});
