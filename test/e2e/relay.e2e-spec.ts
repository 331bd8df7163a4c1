import { setTimeout as pause } from 'node:timers/promises';
import type { QueryRunner } from 'typeorm';
import { eventually, reaches } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'billing.invoice.paid';

/** Every event has exactly one mark of each of `durables`, and one effect of each. */
const notOnce = `SELECT e.id, d.name,
    (SELECT count(*)::int FROM outbox.handled h WHERE h.event_id = e.id AND h.durable = d.id AND h.verdict = 'd') AS marks,
    (SELECT count(*)::int FROM effects f WHERE f.event_id = e.id AND f.durable = d.name) AS effects
  FROM outbox.events e CROSS JOIN outbox.durables d WHERE d.name = ANY ($1)`;

/** Publishes one that is due so much later that its row of the queue is locked before a relay comes to it. */
async function lockInQueue(app: TestApp, holder: QueryRunner): Promise<{ id: string; delayMs: number }> {
  for (let delayMs = 2_000; ; delayMs *= 2) {
    const { id } = await app.publisher.publishNow(event, {}, { delay: `${delayMs}ms` });
    const rows = await holder.query('SELECT 1 FROM outbox.queue WHERE event_id = $1 FOR UPDATE', [id]);
    if (rows.length === 1) return { id, delayMs };
  }
}

describe('concurrent relays each take their own rows', () => {
  const stage = useStage('CREATE INDEX ON effects (event_id, durable)');
  let apps: TestApp[];

  beforeAll(async () => {
    apps = [];
    for (const name of ['a', 'b', 'c']) {
      apps.push(
        await stage.boot({
          providers: ['ledger', 'mail'].map((durable) =>
            subscriber(event, durable, (given, context) => effect(given, context, '', name)),
          ),
          manifest: { emits: [event] },
          // Small batches and short polls, so that the relays meet all the time.
          outbox: { relay: { poll: '20ms', batch: 25 } },
        }),
      );
    }
  });

  it('three apps publish and relay 3,000 events: each has one delivery and one effect for each durable', async () => {
    const total = 3_000;
    await Promise.all(
      apps.map(async (app, a) => {
        for (let i = 0; i < total / apps.length; i += 20) {
          const list = Array.from({ length: 20 }, (_, k) => ({ event, payload: { a, i: i + k } }));
          await app.dataSource.transaction(() => app.publisher.publishMany(list));
        }
      }),
    );
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.events')).toBe(total);
    await reaches('marks', 2 * total, () => stage.database.value<number>('SELECT count(*)::int FROM outbox.handled'));
    await stage.drained();
    const wrong = await stage.database.query(`SELECT * FROM (${notOnce}) x WHERE marks <> 1 OR effects <> 1 LIMIT 5`, [
      ['ledger', 'mail'],
    ]);
    expect(wrong).toEqual([]);
    expect(await stage.database.value('SELECT count(*)::int FROM effects')).toBe(2 * total);
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.queue')).toBe(0);
    // Nothing was tried twice on the way there.
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.attempts')).toBe(0);
    expect(await stage.database.query('SELECT DISTINCT app FROM effects ORDER BY app')).toHaveLength(3);
  });

  it('a row that one transaction has locked keeps no other from being taken', async () => {
    const [app] = apps;
    if (!app) throw new Error('no app');
    const hold = app.dataSource.createQueryRunner();
    await hold.startTransaction();
    try {
      // As if another relay stood still in the middle of its pass.
      const own = await app.publisher.with(hold).publish(event, {});
      const { id } = await app.publisher.publishNow(event, { behind: own.id });
      await eventually('the one behind', () =>
        stage.database.value('SELECT count(*)::int FROM effects WHERE event_id = $1', [id]),
      );
      const { id: locked, delayMs } = await lockInQueue(app, hold);
      const late = await app.publisher.publishNow(event, {}, { delay: `${delayMs + 100}ms` });
      await eventually('the one due later', () =>
        stage.database.value('SELECT count(*)::int FROM effects WHERE event_id = $1', [late.id]),
      );
      expect(await stage.database.value('SELECT count(*)::int FROM effects WHERE event_id = $1', [locked])).toBe(0);
      await hold.commitTransaction();
      await eventually('both in the end', () =>
        stage.database.value('SELECT count(DISTINCT event_id) = 2 FROM effects WHERE event_id IN ($1, $2)', [
          locked,
          own.id,
        ]),
      );
    } finally {
      if (hold.isTransactionActive) await hold.rollbackTransaction();
      await hold.release();
    }
  });
});

describe('a relay pass that fails in the middle loses nothing', () => {
  const stage = useStage();
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({
      providers: [subscriber(event, 'ledger', (given, context) => effect(given, context))],
      manifest: { emits: [event] },
      outbox: { relay: { poll: '50ms' } },
    });
  });

  it('however often it is cancelled', async () => {
    const locker = app.dataSource.createQueryRunner();
    await locker.startTransaction();
    // The fan-out has taken its rows from the queue and waits where it writes the deliveries.
    await locker.query('LOCK TABLE outbox.deliveries IN EXCLUSIVE MODE');
    const list = Array.from({ length: 50 }, (_, i) => ({ event, payload: { i } }));
    const published = await app.dataSource.transaction(() => app.publisher.publishMany(list));
    const ids = published.map((p) => p.id);
    const cancel = `SELECT pg_cancel_backend(pid) AS done FROM pg_stat_activity WHERE datname = current_database()
      AND application_name = 'nestjs-outbox relay' AND wait_event_type = 'Lock' AND query LIKE '%outbox.deliveries%'`;
    for (let n = 0; n < 3; n++) {
      await eventually('the relay waits in the middle of its pass', () => stage.database.value<boolean>(cancel));
    }
    expect(await stage.database.value('SELECT count(*)::int FROM outbox.queue WHERE event_id = ANY ($1)', [ids])).toBe(
      50,
    );
    await locker.rollbackTransaction();
    await locker.release();
    await eventually('all are handled', () =>
      stage.database.value<boolean>('SELECT count(*) = 50 FROM effects WHERE event_id = ANY ($1)', [ids]),
    );
    await stage.drained();
    expect(
      await stage.database.value('SELECT count(DISTINCT event_id)::int FROM effects WHERE event_id = ANY ($1)', [ids]),
    ).toBe(50);
    expect(app.log.matching(/^error outbox\.relay failed and goes on: canceling statement/).length).toBeGreaterThan(0);
  });
});

describe('registration beside a running relay', () => {
  const stage = useStage();
  let app: TestApp;

  const bootWith = (durable: string, from?: 'beginning' | 'registration', types: readonly string[] = [event]) =>
    stage.boot({
      providers: types.map((type, i) =>
        subscriber(
          type,
          i === 0 ? durable : `${durable}-${i}`,
          (given, context) => effect(given, context),
          from ? { from } : {},
        ),
      ),
      manifest: { emits: [event, 'billing.other.done'] },
      outbox: { relay: { poll: '50ms' } },
    });
  const since = (durable: string) =>
    stage.database.value<string>(
      `SELECT t.since::text FROM outbox.durable_types t JOIN outbox.durables d ON d.id = t.durable WHERE d.name = $1`,
      [durable],
    );
  const handledBy = async (durable: string) => {
    const rows = await stage.database.query<{ event_id: string }>('SELECT event_id FROM effects WHERE durable = $1', [
      durable,
    ]);
    return rows.map((row) => row.event_id);
  };

  beforeAll(async () => {
    app = await bootWith('ledger');
  });

  it('a durable that registers under load gets every event from then on, and none from before', async () => {
    // The time between `since` and the commit is long enough for several passes of every relay.
    await stage.database.query(`
      CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END $$;
      CREATE TRIGGER dawdle AFTER INSERT ON outbox.durable_types FOR EACH STATEMENT EXECUTE FUNCTION dawdle()`);
    // Two more relays, whose batches are small, so that all of them are in a pass most of the time.
    const relays = await Promise.all(
      [1, 2].map(() => stage.boot({ outbox: { role: 'worker', relay: { poll: '20ms', batch: 20 } } })),
    );
    // By the publisher's own order: which events were committed, and which were not begun.
    const committed: string[] = [];
    let stop = false;
    const lane = async () => {
      while (!stop) {
        const list = Array.from({ length: 2 }, () => ({ event, payload: {} }));
        const ids = await app.dataSource.transaction(() => app.publisher.publishMany(list));
        committed.push(...ids.map(({ id }) => id));
        await pause(20);
      }
    };
    const lanes = Promise.all([lane(), lane(), lane()]);
    const more = async (n: number) => {
      const from = committed.length;
      await eventually(`${n} more events`, () => committed.length >= from + n);
    };
    const registrations: { durable: string; before: string[]; begun: string[] }[] = [];
    for (const durable of ['audit', 'search', 'export', 'report']) {
      await more(50);
      const before = [...committed];
      await bootWith(durable);
      // What is under way now was begun before the boot had ended; nobody says on which side it is.
      const from = committed.length;
      await more(50);
      registrations.push({ durable, before, begun: committed.slice(from + 3 * 2) });
    }
    stop = true;
    await lanes;
    await stage.database.query('DROP FUNCTION dawdle() CASCADE');
    await stage.drained();
    for (const { durable, before, begun } of registrations) {
      const got = await handledBy(durable);
      expect(got).toHaveLength(new Set(got).size);
      expect(before.filter((id) => got.includes(id))).toEqual([]);
      expect(begun.length).toBeGreaterThan(20);
      expect([...begun, ...committed.slice(-20)].filter((id) => !got.includes(id))).toEqual([]);
      // Between the two it is the database's order that counts: all from `since` on, whenever they were committed.
      const meant = await stage.database.query<{ id: string }>(
        `SELECT id FROM outbox.events WHERE type = $1 AND created_at >= $2::timestamptz`,
        [event, await since(durable)],
      );
      expect(got.toSorted()).toEqual(meant.map((row) => row.id).toSorted());
    }
    await Promise.all(relays.map((relay) => relay.close()));
  });

  it('an event that comes between "since" and the commit of a registration waits for it', async () => {
    // The registration is held between reading `since` and its commit, by a row that somebody else has not committed.
    const holder = app.dataSource.createQueryRunner();
    const id = await stage.database.value<number>(`INSERT INTO outbox.durables (name) VALUES ('late') RETURNING id`);
    await holder.startTransaction();
    await holder.query(
      `INSERT INTO outbox.durable_types (durable, pattern, matcher, since) VALUES ($1, $2, $2, clock_timestamp())`,
      [id, event],
    );
    const booting = bootWith('late');
    const registering = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
      AND query LIKE '%durable_types%' AND application_name = 'nestjs-outbox worker'`;
    await eventually('the registration waits', () => stage.database.value<number>(registering));
    const between = await app.publisher.publishNow(event, { between: true });
    const reached = `SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND NOT granted) > 0
      OR NOT EXISTS (SELECT 1 FROM outbox.queue WHERE event_id = $1)`;
    await eventually('the relay comes to the event', () => stage.database.value<boolean>(reached, [between.id]));
    await holder.rollbackTransaction();
    await holder.release();
    await booting;
    const created = await stage.database.value<boolean>(
      'SELECT created_at >= $2::timestamptz FROM outbox.events WHERE id = $1',
      [between.id, await since('late')],
    );
    expect(created).toBe(true);
    await eventually('it is handled', async () => (await handledBy('late')).includes(between.id));
  });

  it("from: 'beginning' gets what there was, each event once, and only of its own types", async () => {
    const other = await app.publisher.publishNow('billing.other.done', {});
    const waiting = await app.publisher.publishNow(event, {}, { delay: '1h' });
    await stage.settled();
    const events = await stage.database.query<{ id: string }>(
      `SELECT id FROM outbox.events WHERE type = $1 AND id <> $2`,
      [event, waiting.id],
    );
    expect(events.length).toBeGreaterThan(5);
    const first = await bootWith('history', 'beginning');
    await reaches('events of the past', events.length, async () => (await handledBy('history')).length);
    expect((await handledBy('history')).toSorted()).toEqual(events.map((row) => row.id).toSorted());
    expect(await handledBy('history')).not.toContain(other.id);
    // A second boot fills in nothing again.
    await first.close();
    await bootWith('history', 'beginning');
    const next = await app.publisher.publishNow(event, {});
    await eventually('the next one', async () => (await handledBy('history')).includes(next.id));
    expect(await handledBy('history')).toHaveLength(events.length + 1);
    await eventually('no back-fill is left', () =>
      stage.database.value<boolean>(`SELECT count(*) = 0 FROM outbox.durable_types WHERE backfill_to IS NOT NULL`),
    );
    // What was not due was left to the relay: once it is due it comes, and once.
    await stage.database.query('UPDATE outbox.queue SET due_at = now() WHERE event_id = $1', [waiting.id]);
    await eventually('the delayed one', async () => (await handledBy('history')).includes(waiting.id));
    expect(await handledBy('history')).toHaveLength(events.length + 2);
  });

  it("an older or newer pod's boot does not change since, nor replay anything", async () => {
    const first = await bootWith('steady');
    const before = await since('steady');
    const one = await app.publisher.publishNow(event, {});
    await eventually('it is handled', async () => (await handledBy('steady')).includes(one.id));
    await first.close();
    const again = await bootWith('steady');
    expect(await since('steady')).toBe(before);
    await again.close();
    // A change of mind about the beginning is no registration anew.
    await bootWith('steady', 'beginning');
    expect(await since('steady')).toBe(before);
    const two = await app.publisher.publishNow(event, {});
    await eventually('it goes on', async () => (await handledBy('steady')).includes(two.id));
    expect((await handledBy('steady')).toSorted()).toEqual([one.id, two.id].toSorted());
  });

  it('events published while no worker of a registered durable lives wait for it', async () => {
    const first = await bootWith('away');
    await first.close();
    const missed = await app.publisher.publishNow(event, {});
    await eventually('the relay of another app has fanned it out', () =>
      stage.database.value<number>(
        `SELECT count(*)::int FROM outbox.deliveries x JOIN outbox.durables d ON d.id = x.durable WHERE x.event_id = $1 AND d.name = 'away'`,
        [missed.id],
      ),
    );
    await bootWith('away');
    await eventually('it is handled', async () => (await handledBy('away')).includes(missed.id));
  });
});
