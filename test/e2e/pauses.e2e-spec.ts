import { jest } from '@jest/globals';
import { type OutboxEvent, OutboxHealth, OutboxInspector, type PauseTarget } from 'nestjs-outbox';
import { Client } from 'pg';
import { eventually, gate, reaches } from '../support/eventually.js';
import { missed, overOf, registryOf, runsOf, stateOf, yearly } from '../support/jobs.js';
import { effect, job, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const paid = 'test.invoice.paid';
const voided = 'test.invoice.voided';
const manifest = { emits: [paid, voided] };

/** The day in an event's id, modulo the ring. */
const bucketOf = (id: string) => Math.floor(Number.parseInt(id.replace('-', '').slice(0, 12), 16) / 86_400_000) % 10;

describe('a pause', () => {
  const stage = useStage();
  /** Each test has its own: what the others left waits for durables that nobody handles any more. */
  let held = '';
  let tests = 0;
  beforeEach(() => {
    held = `held-${++tests}`;
  });
  afterEach(() => stage.database.query('UPDATE outbox.pauses SET ended_at = clock_timestamp() WHERE ended_at IS NULL'));
  /** By the database's clock. */
  const passed = async (seconds: number) => {
    const from = await stage.database.value<Date>('SELECT clock_timestamp()');
    await eventually(`${seconds} seconds have passed`, () =>
      stage.database.value<boolean>(`SELECT clock_timestamp() > $1::timestamptz + $2::int * interval '1 second'`, [
        from,
        seconds,
      ]),
    );
  };
  const inspectorOf = ({ app }: TestApp) => app.get(OutboxInspector);
  const boot = (...durables: string[]) =>
    stage.boot({
      manifest,
      providers: durables.map((durable) => subscriber([paid, voided] as never, durable, (e, c) => effect(e, c))),
    });
  const publish = async (app: TestApp, count: number, type = paid, tenantId: string | null = null) => {
    const events = Array.from({ length: count }, (_, n) => ({ event: type, payload: { n }, tenantId }));
    await app.dataSource.transaction(() => app.publisher.publishMany(events as never));
  };
  const done = (durable: string) =>
    stage.database.value<number>('SELECT count(*)::int FROM effects WHERE durable = $1', [durable]);
  const parked = (durable: string) =>
    stage.database.value<number>(
      'SELECT count(*)::int FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable WHERE n.name = $1 AND d.lease < 0',
      [durable],
    );
  const are = (what: string, count: number, look: () => Promise<number>) => reaches(what, count, look);

  const kinds: [string, PauseTarget, string | null][] = [
    ['durable', { durable: '' }, null],
    ['type', { type: paid }, null],
    ['pattern', { type: 'test.*.paid' }, null],
    ['tenant', { tenantId: 'acme' }, 'acme'],
  ];

  it.each(kinds)(
    'of a %s survives a deploy: nothing is lost, and nothing runs meanwhile',
    async (kind, given, tenant) => {
      const target = kind === 'durable' ? { durable: held } : given;
      const before = await boot(held);
      const pause = await inspectorOf(before).pause(target, { reason: 'INC-42', by: 'ann' });
      expect(await inspectorOf(before).pauses()).toEqual([pause]);
      expect(pause).toMatchObject({ reason: 'INC-42', by: 'ann', until: null });
      await publish(before, 20, paid, tenant);
      await are('parked', 20, () => parked(held));
      await before.close();

      const after = await boot(held);
      await publish(after, 20, paid, tenant);
      await are('parked', 40, () => parked(held));
      expect(await done(held)).toBe(0);
      expect(await inspectorOf(after).pauses()).toEqual([pause]);

      expect(await inspectorOf(after).resume(target, { by: 'bob' })).toBe(true);
      await are('handled', 40, () => done(held));
      expect(await inspectorOf(after).pauses()).toEqual([]);
      expect(await inspectorOf(after).resume(target)).toBe(false);
      expect(
        await stage.database.query(
          `SELECT who, action, why, what->>'pause' AS pause FROM outbox.audit WHERE (what->>'pause')::int = $1 ORDER BY id`,
          [pause.id],
        ),
      ).toEqual([
        { who: 'ann', action: 'pause', why: 'INC-42', pause: `${pause.id}` },
        { who: 'bob', action: 'resume', why: null, pause: `${pause.id}` },
      ]);
      await after.close();
    },
  );

  it('holds what it names, and nothing else', async () => {
    const app = await boot(held, `free-${held}`);
    const inspector = inspectorOf(app);
    await inspector.pause({ durable: held });
    await publish(app, 3);
    await are('the other durable handles them', 3, () => done(`free-${held}`));
    await are('parked', 3, () => parked(held));
    await inspector.resume({ durable: held });
    await are('handled', 3, () => done(held));

    await inspector.pause({ type: voided });
    await inspector.pause({ tenantId: 'acme' });
    await publish(app, 3);
    await publish(app, 2, voided);
    await publish(app, 1, paid, 'acme');
    await publish(app, 1, paid, 'other');
    await are('the others are handled', 7, () => done(held));
    await are('parked', 3, () => parked(held));
    expect(await done(held)).toBe(7);
    expect((await inspector.pauses()).map(({ kind, name }) => [kind, name])).toEqual([
      ['type', voided],
      ['tenant', 'acme'],
    ]);
    await inspector.resume({ type: voided });
    await inspector.resume({ tenantId: 'acme' });
    await are('all are handled', 10, () => done(held));
    await app.close();
  });

  it('once more changes reason, end and owner, and is still one', async () => {
    const app = await boot(held);
    const inspector = inspectorOf(app);
    const first = await inspector.pause({ durable: held }, { reason: 'why?', by: 'ann' });
    const until = new Date(Date.now() + 3_600_000);
    const second = await inspector.pause({ durable: held }, { reason: 'INC-43', by: 'bob', until });
    expect(second).toEqual({ ...first, reason: 'INC-43', by: 'bob', until });
    expect(await inspector.pauses()).toEqual([second]);
    await inspector.resume({ durable: held });
    await app.close();
  });

  it('refuses what is nothing: a durable that is unknown, a type that is none, an end that has passed', async () => {
    const app = await boot(held);
    const inspector = inspectorOf(app);
    await expect(inspector.pause({ durable: `${held}x` })).rejects.toMatchObject({
      code: 'OUTBOX_UNKNOWN_DURABLE',
      message: expect.stringMatching(new RegExp(`did you mean '${held}'.*There are: .*${held}`)),
    });
    await expect(inspector.resume({ durable: 'nobody' })).rejects.toMatchObject({ code: 'OUTBOX_UNKNOWN_DURABLE' });
    for (const target of [{ type: 'paid' }, { tenantId: '' }, {}, { job: 'a', type: paid }, { event: paid }])
      await expect(inspector.pause(target as never)).rejects.toMatchObject({ code: 'OUTBOX_INVALID_QUERY' });
    await expect(inspector.pause({ type: paid }, { until: new Date(0) })).rejects.toThrow(/in the future/);
    await expect(inspector.pause({ type: paid }, { until: new Date(Number.NaN) })).rejects.toThrow(/in the future/);
    // An operator whose clock is an hour slow; the database's says when a pause ends.
    const real = Date.now();
    const clock = jest.spyOn(Date, 'now').mockReturnValue(real - 3_600_000);
    const late = inspector.pause({ type: paid }, { until: new Date(real - 60_000) });
    await expect(late.finally(() => clock.mockRestore())).rejects.toThrow(/in the future/);
    expect(await inspector.pauses()).toEqual([]);
    await app.close();
  });

  it('ends by itself, and what it held runs within two seconds', async () => {
    const app = await boot(held);
    await inspectorOf(app).pause({ durable: held }, { until: new Date(Date.now() + 3_600_000) });
    await publish(app, 5);
    await are('parked', 5, () => parked(held));
    // As if the hour had passed.
    await stage.database.query('UPDATE outbox.pauses SET until = clock_timestamp() WHERE ended_at IS NULL');
    await eventually('all have run', async () => (await done(held)) === 5, process.env['CI'] ? undefined : 5_000);
    expect(await inspectorOf(app).pauses()).toEqual([]);
    await app.close();
  });

  it('takes what was on its ladder as well, and an attempt that it stops is charged to nobody', async () => {
    let fails = true;
    const app = await stage.boot({
      manifest,
      providers: [
        subscriber(
          paid,
          'laddered',
          async (event: OutboxEvent, context) => {
            if (fails) throw new Error('not yet');
            await effect(event, context);
          },
          { backoff: ['1h'] },
        ),
      ],
    });
    await publish(app, 1);
    const row = () =>
      stage.database.query(
        `SELECT attempt, lease < 0 AS parked FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable WHERE n.name = 'laddered' AND attempt > 0`,
      );
    await eventually('the attempt failed', async () => (await row()).length === 1);
    await inspectorOf(app).pause({ durable: 'laddered' });
    fails = false;
    await stage.database.query('UPDATE outbox.deliveries SET due_at = clock_timestamp() WHERE attempt > 0');
    await eventually('it is parked', async () => (await row())[0]?.['parked'] === true);
    expect(await row()).toEqual([{ attempt: 1, parked: true }]);
    await inspectorOf(app).resume({ durable: 'laddered' });
    await are('handled', 1, () => done('laddered'));
    expect(await stage.database.query(`SELECT attempt FROM effects WHERE durable = 'laddered'`)).toEqual([
      { attempt: 2 },
    ]);
    await app.close();
  });

  it('one row under two pauses is held until both have ended', async () => {
    const app = await boot(held);
    const inspector = inspectorOf(app);
    await inspector.pause({ durable: held });
    const tenant = await inspector.pause({ tenantId: 'acme' });
    await publish(app, 1, paid, 'acme');
    await are('parked', 1, () => parked(held));
    await inspector.resume({ durable: held });
    await eventually('the tenant’s has it', () =>
      stage.database.value<boolean>('SELECT count(*) = 1 FROM outbox.deliveries WHERE lease = -$1::int', [tenant.id]),
    );
    expect(await done(held)).toBe(0);
    await inspector.resume({ tenantId: 'acme' });
    await are('handled', 1, () => done(held));
    await app.close();
  });

  it('what a claim parks after its end is found, even when that has been tidied up', async () => {
    const app = await boot(held);
    const { id } = await inspectorOf(app).pause({ durable: held });
    await publish(app, 1);
    await are('parked', 1, () => parked(held));
    // As if its claim had been stopped before its commit, and went on an hour after the end.
    await stage.database.query(
      `UPDATE outbox.pauses SET ended_at = clock_timestamp() - interval '1 hour', released_at = clock_timestamp() WHERE id = $1`,
      [id],
    );
    await app.close();
    const next = await boot(held);
    await are('handled', 1, () => done(held));
    await next.close();
  });

  /** A delivery in the hands of a worker that claims it by hand. */
  const leased = async (lease: number) => {
    const id = await stage.database.value<string>(
      `WITH e AS (INSERT INTO outbox.events (bucket, id, type, payload) SELECT outbox.bucket(id), id, $2, '{}' FROM (SELECT outbox.uuid7(clock_timestamp()) AS id OFFSET 0) x RETURNING id)
       INSERT INTO outbox.deliveries (event_id, durable, lease) SELECT e.id, d.id, $3::int FROM e, outbox.durables d WHERE d.name = $1 RETURNING event_id`,
      [held, paid, lease],
    );
    const claimant = new Client({ connectionString: stage.database.url });
    // It is ended below.
    claimant.on('error', () => {});
    await claimant.connect();
    await claimant.query('BEGIN');
    const { rows } = await claimant.query(
      `SELECT attempt, claimed FROM outbox.durables d, LATERAL outbox.claim_${bucketOf(id)}($1, d.id, $2) WHERE d.name = $3`,
      [id, lease, held],
    );
    expect(rows).toEqual([{ attempt: null, claimed: false }]);
    return { id, claimant };
  };

  it('is over for a claim that commits its parking after the end', async () => {
    const app = await boot(held);
    await inspectorOf(app).pause({ durable: held });
    const { claimant } = await leased(1);
    expect(await inspectorOf(app).resume({ durable: held })).toBe(true);
    expect(await parked(held)).toBe(0);
    await claimant.query('COMMIT');
    await claimant.end();
    await are('handled', 1, () => done(held));
    await app.close();
  });

  it('holds what was being parked when its process was killed', async () => {
    const app = await boot(held);
    await inspectorOf(app).pause({ durable: held });
    const worker = await stage.database.value<number>(
      `INSERT INTO outbox.workers (app) VALUES ('killed') RETURNING id`,
    );
    const { id, claimant } = await leased(worker);
    await stage.database.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`,
    );
    await claimant.end().catch(() => {});
    await are('parked', 1, () => parked(held));
    expect(await done(held)).toBe(0);
    await inspectorOf(app).resume({ durable: held });
    await are('handled', 1, () => done(held));
    expect(await stage.database.value('SELECT count(*)::int FROM effects WHERE event_id = $1', [id])).toBe(1);
    await app.close();
  });

  it('parked ones are cancelled as any other, and none of them runs', async () => {
    const app = await boot(held);
    await inspectorOf(app).pause({ durable: held });
    await publish(app, 2);
    await are('parked', 2, () => parked(held));
    const [first] = await stage.database.query<{ event_id: string }>(
      'SELECT event_id FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable WHERE n.name = $1 AND lease < 0 LIMIT 1',
      [held],
    );
    await stage.database.query('SELECT * FROM outbox.cancel($1)', [first?.event_id]);
    await inspectorOf(app).resume({ durable: held });
    await are('the other is handled', 1, () => done(held));
    await are('nothing is left', 0, () =>
      stage.database.value<number>(
        'SELECT count(*)::int FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable WHERE n.name = $1',
        [held],
      ),
    );
    expect(await done(held)).toBe(1);
    await app.close();
  });

  it('is told to be released when nothing can be parked under it any more', async () => {
    const app = await boot(held);
    const { id } = await inspectorOf(app).pause({ durable: held });
    await inspectorOf(app).resume({ durable: held });
    const released = () =>
      stage.database.value<boolean>('SELECT released_at IS NOT NULL FROM outbox.pauses WHERE id = $1', [id]);
    expect(await released()).toBe(false);
    await stage.database.query(`UPDATE outbox.pauses SET ended_at = ended_at - interval '2 minutes' WHERE id = $1`, [
      id,
    ]);
    await eventually('the sweep says so', released);
    await app.close();
  });

  it('of a durable that is renamed meanwhile goes on under the new name', async () => {
    const before = await boot('former');
    await inspectorOf(before).pause({ durable: 'former' });
    await publish(before, 2);
    await are('parked', 2, () => parked('former'));
    await before.close();
    const after = await stage.boot({
      manifest,
      providers: [subscriber([paid, voided] as never, 'latter', (e, c) => effect(e, c), { formerly: ['former'] })],
    });
    const inspector = inspectorOf(after);
    expect(await inspector.pauses()).toMatchObject([{ kind: 'durable', name: 'latter' }]);
    await inspector.pause({ durable: 'latter' }, { reason: 'still' });
    expect(await inspector.pauses()).toMatchObject([{ name: 'latter', reason: 'still' }]);
    expect(await done('latter')).toBe(0);
    expect(await inspector.resume({ durable: 'former' })).toBe(true);
    await are('handled', 2, () => done('latter'));
    await after.close();
  });

  it('ends with the durable that is retired, and what it held is dropped', async () => {
    const app = await boot('retiring');
    await inspectorOf(app).pause({ durable: 'retiring' });
    await publish(app, 4);
    await are('parked', 4, () => parked('retiring'));
    await app.close();
    await stage.database.query(
      `UPDATE outbox.durables SET seen_at = now() - interval '1 hour' WHERE name = 'retiring'`,
    );
    const desk = await boot(held);
    expect(await inspectorOf(desk).retire('retiring', { by: 'ann', reason: 'gone' })).toEqual({ dropped: 4 });
    expect(await inspectorOf(desk).pauses()).toEqual([]);
    expect(await inspectorOf(desk).retire('retiring', { by: 'bob', reason: 'once more' })).toEqual({ dropped: 0 });
    expect(await stage.database.query(`SELECT who, what, why FROM outbox.audit WHERE action = 'retire'`)).toEqual([
      { who: 'ann', what: { durable: 'retiring' }, why: 'gone' },
    ]);
    await desk.close();
  });

  it('lets what runs run on, and holds what comes after it', async () => {
    const entered = gate();
    const leave = gate();
    const app = await stage.boot({
      manifest,
      providers: [
        subscriber(paid, 'slow', async (event: OutboxEvent<{ n: number }>, context) => {
          entered.open();
          await leave.passed;
          await effect(event, context);
        }),
      ],
    });
    await publish(app, 1);
    await entered.passed;
    await inspectorOf(app).pause({ durable: 'slow' });
    await publish(app, 1);
    await are('parked', 1, () => parked('slow'));
    leave.open();
    await are('handled', 1, () => done('slow'));
    await inspectorOf(app).resume({ durable: 'slow' });
    await are('handled', 2, () => done('slow'));
    await app.close();
  });

  it('is told by health, which does not call what waits under it late or unserved', async () => {
    const app = await boot(held);
    await inspectorOf(app).pause({ durable: held }, { reason: 'INC-42', by: 'ann' });
    await publish(app, 1);
    await are('parked', 1, () => parked(held));
    // One that no claim has seen, an hour old, of a durable that no worker has had for as long.
    const [other] = await stage.database.query<{ id: number }>(
      `INSERT INTO outbox.durables (name, seen_at) VALUES ($1, now() - interval '1 hour') RETURNING id`,
      [`${held}-b`],
    );
    await stage.database.query(
      `INSERT INTO outbox.deliveries (event_id, durable, due_at) VALUES (gen_random_uuid(), $1, now() - interval '1 hour')`,
      [other?.id],
    );
    const problems = async () =>
      (await app.app.get(OutboxHealth).check()).problems.filter(({ message }) => message.includes(held));
    expect(await problems()).toMatchObject([
      { code: 'unserved' },
      { status: 'yellow', code: 'paused', message: expect.stringMatching(/is paused since .* by ann: INC-42/) },
    ]);
    await inspectorOf(app).pause({ durable: `${held}-b` }, { by: 'bob' });
    expect((await problems()).map(({ code }) => code)).toEqual(['paused', 'paused']);
    await app.close();
  });

  describe('of a job', () => {
    it('holds its slots over a deploy, and makes up for them as the job would', async () => {
      const runs: string[] = [];
      const providers = [
        job('once', yearly, () => runs.push('once'), { missed: 'once' }),
        job('skips', yearly, () => runs.push('skips'), { missed: 'skip' }),
      ];
      const before = await stage.boot({ providers });
      // Not yet known to any process: it may be paused before its first deploy.
      await inspectorOf(before).pause({ job: 'tomorrow' });
      for (const name of ['once', 'skips']) await inspectorOf(before).pause({ job: name }, { reason: 'audit' });
      await eventually('both are registered', async () => (await stateOf(stage, 'skips')) && stateOf(stage, 'once'));
      await before.close();
      const after = await stage.boot({ providers });
      for (const name of ['once', 'skips']) {
        await missed(stage, name);
        await registryOf(after).getCronJob(name).fireOnTick();
      }
      await passed(2);
      expect(runs).toEqual([]);
      for (const name of ['once', 'skips', 'tomorrow'])
        expect(await inspectorOf(after).resume({ job: name })).toBe(true);
      await overOf(stage, 'once');
      expect(runs).toEqual(['once']);
      await after.close();
    });

    it('holds a retry, and one that runs everywhere', async () => {
      let fails = true;
      let ticks = 0;
      const app = await stage.boot({
        providers: [
          job('retried', yearly, () => fails && Promise.reject(new Error('not yet')), { retries: 3, missed: 'once' }),
          job('everywhere', { every: '1s' }, () => ticks++, { parallel: true }),
        ],
      });
      await missed(stage, 'retried');
      await registryOf(app).getCronJob('retried').fireOnTick();
      await eventually('it waits for its retry', async () => (await stateOf(stage, 'retried'))?.retry_at);
      await eventually('the other ticks', () => ticks > 0);
      fails = false;
      await inspectorOf(app).pause({ job: 'retried' });
      await inspectorOf(app).pause({ job: 'everywhere' });
      await stage.database.query(`UPDATE outbox.job_state SET retry_at = clock_timestamp() WHERE job = 'retried'`);
      await registryOf(app).getCronJob('retried').fireOnTick();
      const then = ticks;
      await passed(3);
      // The one that a look before the pause had begun.
      expect(ticks - then).toBeLessThanOrEqual(1);
      expect((await stateOf(stage, 'retried'))?.attempt).toBe(1);
      const paused = ticks;
      await inspectorOf(app).resume({ job: 'everywhere' });
      await inspectorOf(app).resume({ job: 'retried' });
      await eventually('it ticks again', () => ticks > paused);
      expect(await overOf(stage, 'retried')).toMatchObject({ outcome: 'done', attempt: 2 });
      expect((await runsOf(stage, 'retried')).map(({ outcome }) => outcome)).toEqual(['failed', 'done']);
      await app.close();
    });
  });
});
