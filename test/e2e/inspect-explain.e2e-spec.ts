import { type ExplainQuery, type Finding, OutboxInspector, outboxSchema, UnrecoverableError } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';
import { createRole, describeWithRoles, type TestRole } from '../support/test-role.js';

const paid = 'billing.invoice.paid';
const seen = 'billing.invoice.seen';
const manifest = { emits: [paid, seen] };

/** What of a finding the tests compare: `ledger retrying retryable`, `- not-due pending`. */
const short = ({ durable, reason, state }: Finding): string => `${durable ?? '-'} ${reason} ${state ?? '-'}`;

describe('why an event was not handled, on a database that nobody works on', () => {
  const stage = useStage();
  let desk: TestApp;
  let inspector: OutboxInspector;

  beforeAll(async () => {
    // Registers ledger and mail, and is gone.
    const worker = await stage.boot({
      manifest,
      providers: ['ledger', 'mail'].map((d) => subscriber(paid, d, effect)),
    });
    await worker.close();
    desk = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    inspector = desk.app.get(OutboxInspector);
  });

  afterEach(async () => {
    for (const name of [
      'workers',
      'pauses',
      'deliveries',
      'queue',
      'dead_letters',
      'handled',
      'attempts',
      'unique_keys',
    ])
      await stage.database.query(`DELETE FROM outbox.${name}`);
    await stage.database.query(`UPDATE outbox.durables SET seen_at = clock_timestamp(), state = 'active'`);
    await stage.database.query(`DELETE FROM outbox.durables WHERE name = 'fraud'`);
    await stage.database.query(
      `UPDATE outbox.durable_types SET since = now() - interval '1 hour', ended_at = NULL, backfill_to = NULL`,
    );
  });

  const why = (query: ExplainQuery) => inspector.explain(query);
  const found = async (id: string) => (await why({ id })).findings.map(short);
  /** The finding about one durable, or about the event. */
  const about = async (id: string, durable: string | null = 'ledger') => {
    const finding = (await why({ id })).findings.find((one) => one.durable === durable);
    if (!finding) throw new Error(`nothing was found about ${durable}`);
    return finding;
  };
  const publish = async (options = {}, type = paid) => (await desk.publisher.publishNow(type, {}, options)).id;
  /** It has left the queue. */
  const forwarded = async (options = {}, type = paid) => {
    const id = await publish(options, type);
    await stage.database.query('DELETE FROM outbox.queue WHERE event_id = $1', [id]);
    return id;
  };
  const number = (durable: string) =>
    stage.database.value<number>('SELECT id FROM outbox.durables WHERE name = $1', [durable]);
  /** A row of the durable, all else by default. */
  const row = async (id: string, columns: Record<string, string> = {}, durable = 'ledger') => {
    const names = Object.keys(columns).map((name) => `, ${name}`);
    const values = Object.values(columns).map((value) => `, ${value}`);
    await stage.database.query(
      `INSERT INTO outbox.deliveries (event_id, durable${names.join('')}) VALUES ($1, $2${values.join('')})`,
      [id, await number(durable)],
    );
  };
  const marked = async (id: string, verdict: 'd' | 'x' | 'c', worker: number | null = null, durable = 'ledger') =>
    stage.database.query(
      'INSERT INTO outbox.handled (bucket, event_id, durable, verdict, attempts, worker) VALUES (outbox.bucket($1), $1, $2, $3, 2, $4)',
      [id, await number(durable), verdict, worker],
    );
  const letter = (id: string, durable: string, columns: Record<string, string> = {}) =>
    stage.database.query(
      `INSERT INTO outbox.dead_letters (event_id, durable, type, payload, created_at, error, attempts${Object.keys(
        columns,
      )
        .map((name) => `, ${name}`)
        .join('')})
       VALUES ($1, $2, '${paid}', '{}', now(), E'Error: too much\\n at x', 10${Object.values(columns)
         .map((value) => `, ${value}`)
         .join('')})`,
      [id, durable],
    );
  /** Says that it is there; nobody sweeps. */
  const worker = (app: string, columns = 'DEFAULT') =>
    stage.database.value<number>(`INSERT INTO outbox.workers (app, in_flight) VALUES ($1, ${columns}) RETURNING id`, [
      app,
    ]);
  const pause = async (kind: string, name: string, rest: Record<string, string> = {}) =>
    stage.database.value<number>(
      `INSERT INTO outbox.pauses (kind, name, durable, matcher, reason, paused_by, ended_at)
       VALUES ($1, $2, $3, replace($2, '*', '%'), 'INC-42', 'ana', ${rest['ended_at'] ?? 'NULL'}) RETURNING id`,
      [kind, name, kind === 'durable' ? await number(name) : null],
    );

  it('not-found says which is likelier: never committed, or forgotten', async () => {
    const young = await stage.database.value<string>('SELECT outbox.uuid7(clock_timestamp())');
    const old = await stage.database.value<string>(`SELECT outbox.uuid7(clock_timestamp() - interval '9 days')`);
    const random = await stage.database.value<string>('SELECT gen_random_uuid()');
    const texts: [ExplainQuery, RegExp][] = [
      [{ id: young }, /its id is of \S+ \(.*\): .*rolled back or has not committed yet/],
      [{ id: old }, /its id is of \d{4}-\d\d-\d\d \S+ \(9 d ago\): it is forgotten.*kept for 7 d/],
      [{ id: random }, /was not made by this outbox/],
      [{ id: '42' }, /'42' is no id of an event/],
      [{ subject: 'nobody' }, /no event of subject 'nobody'/],
      [{ unique: 'nothing' }, /no event stands under the key 'nothing'/],
    ];
    for (const [query, text] of texts) {
      const { events, findings, text: block } = await why(query);
      expect(events).toEqual([]);
      expect(findings).toEqual([
        {
          eventId: query.id?.length === 36 ? query.id : null,
          durable: null,
          reason: 'not-found',
          state: null,
          text: expect.stringMatching(text),
          next: null,
        },
      ]);
      expect(block).toMatch(/^NOT FOUND {2}.+\n$/);
    }
    await expect(why({})).rejects.toThrow(/give one of id, subject and unique/);
    await expect(why({ id: young, subject: 's' })).rejects.toThrow(TypeError);
    for (const query of [{ subject: 'a\0b' }, { unique: 'a\0b' }])
      expect((await inspector.explain(query)).findings).toMatchObject([{ reason: 'not-found' }]);
  });

  it('not-due: later today, and later than tomorrow', async () => {
    for (const delay of ['1h', '2d'] as const) {
      const id = await publish({ delay });
      expect(await found(id)).toEqual(['- not-due pending', 'ledger not-due pending', 'mail not-due pending']);
      expect((await about(id, null)).text).toMatch(
        delay === '1h' ? /^due .*\(in 59 min\)$/ : /^due \d{4}-.*\(in 47 h\)$/,
      );
    }
  });

  it('relay-stopped when no worker lives, relay-behind when one does', async () => {
    const id = await publish();
    expect(await found(id)).toEqual([
      '- relay-stopped pending',
      'ledger relay-stopped pending',
      'mail relay-stopped pending',
    ]);
    expect(await about(id, null)).toMatchObject({
      text: expect.stringMatching(
        /^in the queue, due since .*: no worker lives that would forward it, and none was seen ever$/,
      ),
      next: 'npx nestjs-outbox status',
    });
    const dead = await worker('host:1');
    await stage.database.query(`UPDATE outbox.workers SET seen_at = now() - interval '3 hours' WHERE id = $1`, [dead]);
    expect((await about(id, null)).text).toMatch(/the last was seen .*\(3 h ago\)$/);
    await worker('host:2');
    expect(await found(id)).toEqual([
      '- relay-behind pending',
      'ledger relay-behind pending',
      'mail relay-behind pending',
    ]);
    expect((await about(id)).text).toBe('waits for the relay');
    // What is scheduled and due is the relay's, too.
    const scheduled = await publish({ delay: '2d' });
    await stage.database.query(`UPDATE outbox.scheduled SET due_at = now() - interval '1 minute' WHERE id = $1`, [
      scheduled,
    ]);
    expect((await about(scheduled, null)).reason).toBe('relay-behind');
  });

  it('forwarding-fails while the broker refuses it, and when the relay has given up', async () => {
    await worker('host:1');
    const id = await publish();
    await stage.database.query(
      `UPDATE outbox.queue SET attempts = 3, last_error = E'TooLarge: 2 MB\\n at y', due_at = now() + interval '1 minute' WHERE event_id = $1`,
      [id],
    );
    expect(await found(id)).toEqual([
      '- forwarding-fails pending',
      'ledger forwarding-fails pending',
      'mail forwarding-fails pending',
    ]);
    expect((await about(id, null)).text).toMatch(/^refused 3 times, next try .*: TooLarge: 2 MB$/);
    await stage.database.query('DELETE FROM outbox.queue');
    await letter(id, '#relay');
    expect(await found(id)).toEqual([
      '- forwarding-fails discarded',
      'ledger forwarding-fails -',
      'mail forwarding-fails -',
    ]);
    expect(await about(id, null)).toMatchObject({
      text: expect.stringMatching(/^given up .* after 10 tries: Error: too much$/),
      next: `npx nestjs-outbox retry ${id} --durable '#relay'`,
    });
    await stage.database.query(`UPDATE outbox.dead_letters SET resolved_at = now(), resolution = 'by hand'`);
    expect(await about(id, null)).toMatchObject({ text: expect.stringMatching(/; closed .*: by hand$/), next: null });
    // Retried: in the queue again, under a due time that is not the id's.
    await stage.database.query(
      `UPDATE outbox.dead_letters SET resolution = 'retried', resolved_at = clock_timestamp()`,
    );
    await stage.database.query('INSERT INTO outbox.queue (event_id) VALUES ($1)', [id]);
    expect((await about(id, null)).reason).toBe('relay-behind');
  });

  it('no-subscriber: nobody was registered for it', async () => {
    const id = await forwarded({}, seen);
    expect(await found(id)).toEqual(['- no-subscriber -']);
    expect((await about(id, null)).text).toBe(`no durable was registered for ${seen} when it was published`);
  });

  it('not-meant: registered later, retired, or ended for that type', async () => {
    await worker('host:1');
    const id = await forwarded();
    await marked(id, 'd', null, 'mail');
    const types = (set: string) =>
      stage.database.query(
        `UPDATE outbox.durable_types SET ${set} WHERE durable = (SELECT id FROM outbox.durables WHERE name = 'ledger')`,
      );
    await types(`since = clock_timestamp() + interval '1 second'`);
    expect(await found(id)).toEqual(['ledger not-meant -', 'mail handled completed']);
    expect(await about(id)).toMatchObject({
      text: expect.stringMatching(/^registered .*, after this event was published$/),
      next: `npx nestjs-outbox send ${id} --to ledger`,
    });
    await types(`since = '-infinity', ended_at = now()`);
    expect(await about(id)).toMatchObject({
      reason: 'not-meant',
      text: expect.stringMatching(/^gets no .* any more since/),
      next: null,
    });
    await stage.database.query(`UPDATE outbox.durables SET state = 'retired' WHERE name = 'ledger'`);
    expect(await about(id)).toMatchObject({
      reason: 'not-meant',
      text: expect.stringMatching(/^the durable is retired since/),
      next: null,
    });
    // A row of a retired one that is left is nobody's.
    await row(id);
    expect(await about(id)).toMatchObject({ reason: 'no-worker', text: expect.stringMatching(/retired/), next: null });
  });

  it('paused: parked, due and not claimed yet, and in the queue still', async () => {
    await worker('host:1');
    const queued = await publish({ tenantId: 'acme' });
    const due = await forwarded({ tenantId: 'acme' });
    const parked = await forwarded();
    const later = await forwarded();
    await row(due);
    const by = await pause('durable', 'ledger');
    await row(parked, { lease: `${-by}`, due_at: `now() - interval '1 minute'` });
    await row(later, { attempt: '1', due_at: `now() + interval '1 hour'` });
    for (const id of [queued, due, parked])
      expect(await about(id)).toMatchObject({
        ...{ reason: 'paused', state: 'pending', next: 'npx nestjs-outbox resume ledger' },
        text: expect.stringMatching(/^durable is paused since \S+ by ana: "INC-42"$/),
      });
    expect(await about(later)).toMatchObject({
      reason: 'retrying',
      text: expect.stringMatching(/; then held back: durable is paused/),
    });
    await stage.database.query('DELETE FROM outbox.pauses');
    expect(await about(parked)).toMatchObject({
      reason: 'queued',
      text: 'its pause is over, and it is taken within seconds',
    });
    await pause('tenant', 'acme');
    expect(await about(due)).toMatchObject({ reason: 'paused', next: 'npx nestjs-outbox resume --tenant acme' });
    expect(await about(queued, 'mail')).toMatchObject({ reason: 'paused' });
    await stage.database.query('DELETE FROM outbox.pauses');
    await pause('type', 'billing.*.*');
    expect(await about(due)).toMatchObject({ reason: 'paused', next: "npx nestjs-outbox resume --type 'billing.*.*'" });
    await stage.database.query('UPDATE outbox.pauses SET until = now()');
    expect(await about(due)).toMatchObject({ reason: 'queued' });
  });

  it('queued: due, taken, with a broker, or history that is filled in', async () => {
    const living = await worker('host:1');
    const texts: [Record<string, string> | null, RegExp][] = [
      [{ due_at: `now() - interval '3 minutes'` }, /^due since \S+ \(3 min\), waits for a handler that is free$/],
      [{ lease: `${living}` }, /^taken by host:1, begins when a handler is free$/],
      [{ lease: '77777' }, /^was taken by worker 77777, which is gone; others take it/],
      [null, /^forwarded, and no worker has answered for it yet/],
    ];
    for (const [columns, text] of texts) {
      const id = await forwarded();
      if (columns) await row(id, columns);
      expect(await about(id)).toMatchObject({
        reason: 'queued',
        state: 'pending',
        text: expect.stringMatching(text),
        next: null,
      });
    }
    const id = await forwarded();
    await stage.database.query(`UPDATE outbox.durable_types SET backfill_to = '00000000-0000-0000-0000-000000000000'`);
    expect(await about(id)).toMatchObject({
      reason: 'queued',
      text: expect.stringMatching(/is given its history now/),
    });
    const postponed = await forwarded();
    await row(postponed, { due_at: `now() + interval '4 seconds'` });
    expect(await about(postponed)).toMatchObject({
      reason: 'not-due',
      text: expect.stringMatching(/^not tried yet, due/),
    });
  });

  it('running: on which worker, since when, with a row or without', async () => {
    const [withRow, without] = [await forwarded(), await forwarded()];
    await row(withRow, { attempt: '2' });
    const d = await number('ledger');
    await worker('host:1', `'{"deliveries":[["${withRow}",${d},62000],["${without}",${d},5000]]}'`);
    expect(await about(withRow)).toMatchObject({
      reason: 'running',
      state: 'running',
      text: expect.stringMatching(/^by host:1 since \S+ \(6\d s\), attempt 3$/),
      next: null,
    });
    expect(await about(without)).toMatchObject({ reason: 'running', text: expect.stringMatching(/attempt 1$/) });
  });

  it('retrying: which attempt, when, why, and how many more', async () => {
    await worker('host:1');
    const ids: string[] = [];
    for (let n = 0; n < 4; n++) ids.push(await forwarded());
    const [id = '', ...others] = ids;
    for (const other of ids)
      await row(other, {
        attempt: '3',
        due_at: `now() + interval '6.5 minutes'`,
        last_error: `E'ConnectTimeoutError: smtp\\n at ${other}'`,
      });
    await stage.database.query(
      `INSERT INTO outbox.attempts (bucket, event_id, durable, n, error, failed_at) SELECT outbox.bucket(id), id, $2, 1, 'ConnectTimeoutError: smtp', now() - interval '20 minutes' FROM unnest($1::uuid[]) id`,
      [others, await number('ledger')],
    );
    expect(await about(id)).toMatchObject({
      ...{ reason: 'retrying', state: 'retryable', next: `npx nestjs-outbox retry ${id} --durable ledger` },
      text: expect.stringMatching(
        /^attempt 4 \S+ \(in 6 min\): ConnectTimeoutError: smtp {3}\[3 more like it since .*\]$/,
      ),
    });
    const due = await forwarded();
    await row(due, { interruptions: '2', snoozes: '1', due_at: `now() - interval '1 minute'` });
    expect(await about(due)).toMatchObject({
      ...{ reason: 'retrying', state: 'retryable', next: null },
      text: expect.stringMatching(/^attempt 1 due since .*, interrupted 2 times, put off once by the handler$/),
    });
  });

  it('dead: open, closed, forgotten with its event or before it', async () => {
    const id = await forwarded();
    await marked(id, 'x');
    await letter(id, 'ledger');
    expect(await about(id)).toMatchObject({
      ...{ reason: 'dead', state: 'discarded', next: `npx nestjs-outbox retry ${id} --durable ledger` },
      text: expect.stringMatching(/^given up .* after 10 attempts: Error: too much$/),
    });
    await stage.database.query(`UPDATE outbox.dead_letters SET resolved_at = now(), resolution = 'refunded'`);
    expect(await about(id)).toMatchObject({ text: expect.stringMatching(/; closed .*: refunded$/), next: null });
    await stage.database.query('DELETE FROM outbox.dead_letters');
    expect(await about(id)).toMatchObject({
      reason: 'dead',
      text: expect.stringMatching(/its dead letter .* is forgotten$/),
      next: null,
    });
    await letter(id, 'ledger');
    await letter(id, 'nobody-any-more');
    await stage.database.query('DELETE FROM outbox.events WHERE id = $1', [id]);
    await stage.database.query('DELETE FROM outbox.handled WHERE event_id = $1', [id]);
    expect(await found(id)).toEqual(['ledger dead discarded', 'nobody-any-more dead discarded']);
    expect(await about(id)).toMatchObject({ text: expect.stringMatching(/the event itself is forgotten/), next: null });
  });

  it('cancelled: for every durable, or for nobody; a later one was not meant', async () => {
    const id = await publish();
    await stage.database.query('SELECT outbox.cancel($1)', [id]);
    expect(await found(id)).toEqual(['ledger cancelled cancelled', 'mail cancelled cancelled']);
    const lonely = await publish({}, seen);
    await stage.database.query('SELECT outbox.cancel($1)', [lonely]);
    expect(await found(lonely)).toEqual(['- cancelled cancelled']);
    expect((await about(lonely, null)).text).toMatch(/^cancelled \S+ \(.* ago\), for everybody$/);
  });

  it('handled: by whom, when, at which attempt', async () => {
    const id = await forwarded();
    await marked(id, 'd', await worker('host:1'));
    expect(await about(id)).toMatchObject({
      reason: 'handled',
      state: 'completed',
      text: expect.stringMatching(/^\d\d:\d\d:\d\d by host:1, attempt 2$/),
      next: null,
    });
    await stage.database.query('DELETE FROM outbox.workers');
    expect((await about(id)).text).toMatch(/by worker \d+, which is gone, attempt 2$/);
  });

  it('no-worker: due, and nobody that handles it was seen lately', async () => {
    const [withRow, taken, without] = [await forwarded(), await forwarded(), await forwarded()];
    await row(withRow, { due_at: `now() - interval '5 minutes'` });
    await row(taken, { lease: '77777' });
    for (const id of [withRow, taken, without])
      expect(await about(id)).toMatchObject({ reason: 'no-worker', next: 'npx nestjs-outbox status' });
    // Others work, and none of them has this durable.
    await worker('host:1');
    await stage.database.query(`UPDATE outbox.durables SET seen_at = now() - interval '3 hours' WHERE name = 'ledger'`);
    expect((await about(withRow)).text).toMatch(
      /^due since \S+ \(5 min\): no worker that handles it, the last was seen .* \(3 h ago\)$/,
    );
    expect((await about(without)).reason).toBe('no-worker');
    await stage.database.query(`UPDATE outbox.durables SET seen_at = NULL WHERE name = 'ledger'`);
    expect((await about(withRow)).text).toMatch(/and none was seen ever$/);
  });

  it('finds by subject and by unique key, newest first, narrowed by type and tenant, twenty at most', async () => {
    const first = await publish({ subject: '42', tenantId: 'acme', unique: 'pay-42' });
    const second = await publish({ subject: '42', tenantId: 'other', unique: 'pay-42' }, seen);
    const third = await publish({ subject: '42', delay: '3d' });
    const ids = async (query: ExplainQuery) => (await why(query)).events.map(({ id }) => id);
    expect(await ids({ subject: '42' })).toEqual([third, second, first]);
    expect(await ids({ subject: '42', type: paid })).toEqual([third, first]);
    expect(await ids({ subject: '42', tenantId: 'acme' })).toEqual([first]);
    expect(await ids({ unique: 'pay-42' })).toEqual([second, first]);
    expect(await ids({ unique: 'pay-42', type: seen })).toEqual([second]);
    expect(await ids({ unique: 'pay-42', tenantId: 'acme' })).toEqual([first]);
    const many = Array.from({ length: 25 }, (_, n) => ({ event: paid, payload: { n }, subject: 'many' }));
    const published = await desk.dataSource.transaction(() => desk.publisher.publishMany(many));
    const newest = published
      .map(({ id }) => id)
      .sort()
      .reverse()
      .slice(0, 20);
    expect(await ids({ subject: 'many' })).toEqual(newest);
    // Its event is forgotten, and the key stands still.
    await stage.database.query('DELETE FROM outbox.events WHERE id = $1', [first]);
    expect((await why({ unique: 'pay-42', tenantId: 'acme' })).findings).toMatchObject([
      { eventId: first, reason: 'not-found', text: expect.stringMatching(/is forgotten/) },
    ]);
  });

  it('changes nothing, and waits for no lock of a claim or a relay', async () => {
    const id = await forwarded();
    await row(id);
    const runner = desk.dataSource.createQueryRunner();
    await runner.startTransaction();
    try {
      await runner.query('LOCK TABLE outbox.deliveries, outbox.queue, outbox.handled IN ROW EXCLUSIVE MODE');
      await runner.query('DELETE FROM outbox.deliveries WHERE event_id = $1', [id]);
      expect((await about(id)).reason).toBe('no-worker');
    } finally {
      await runner.rollbackTransaction();
      await runner.release();
    }
  });
});

describe('why an event was not handled, where workers work', () => {
  const stage = useStage();

  it('tells each durable’s outcome, in words and in columns', async () => {
    const app = await stage.boot({
      manifest,
      providers: [
        subscriber(paid, 'ledger', effect),
        subscriber(paid, 'receipt-mail', () => Promise.reject(new Error('ConnectTimeoutError smtp.example:587')), {
          backoff: ['1h'],
        }),
        subscriber(paid, 'audit', () => Promise.reject(new UnrecoverableError('no such account'))),
      ],
    });
    const inspector = app.app.get(OutboxInspector);
    const { id } = await app.publisher.publishNow(
      paid,
      { n: 1 },
      { subject: '42', tenantId: 'acme', headers: { traceparent: `00-${'4bf9'.repeat(8)}-00f067aa0ba902b7-01` } },
    );
    const explanation = await eventually('all three have tried', async () => {
      const now = await inspector.explain({ id });
      return now.findings.map(({ reason }) => reason).join() === 'dead,handled,retrying' && now;
    });
    expect(explanation.events).toEqual([
      {
        id,
        type: paid,
        tenantId: 'acme',
        subject: '42',
        payload: { n: 1 },
        headers: expect.anything(),
        publishedAt: expect.any(Date),
      },
    ]);
    const time = '\\d\\d:\\d\\d:\\d\\d';
    const lines = [
      `${paid}  ${id}  subject 42  tenant acme  published ${time} \\(.* ago\\)  trace (4bf9){8}`,
      `  relay         FORWARDED  before ${time}`,
      `  audit         DISCARDED  given up ${time} \\(.* ago\\) after 1 attempt: UnrecoverableError: no such account   → npx nestjs-outbox retry ${id} --durable audit`,
      `  ledger        COMPLETED  ${time} by \\S+:${process.pid}, attempt 1`,
      `  receipt-mail  RETRYABLE  attempt 2 .*\\(in \\d+ min\\): Error: ConnectTimeoutError smtp.example:587   → npx nestjs-outbox retry ${id} --durable receipt-mail`,
      '',
      `\\(${time} .+, by the database's clock\\)`,
      '',
    ];
    expect(explanation.text).toMatch(new RegExp(`^${lines.join('\n')}$`));
  });
});

describeWithRoles('with the rights of a role', () => {
  const stage = useStage();
  const roles: TestRole[] = [];

  // Runs after the stage's own hook: with the database the grants are gone.
  afterAll(async () => {
    for (const role of roles) await role.drop();
  });

  /** To the gate an application that offers the operator's side is a publisher as well. */
  async function deskOf(actor: 'operator' | 'worker'): Promise<OutboxInspector> {
    const role = await createRole(actor);
    roles.push(role);
    for (const sql of outboxSchema.grants({ [actor]: role.name, publisher: role.name }))
      await stage.database.query(sql);
    const desk = await stage.boot({
      url: role.urlOf(stage.database),
      outbox: { role: 'publisher', schema: { onStart: 'verify' } },
    });
    return desk.app.get(OutboxInspector);
  }

  const ended = [{ durable: 'ledger', state: 'completed', error: null }];
  let app: TestApp;

  beforeAll(async () => {
    app = await stage.boot({ manifest, providers: [subscriber(paid, 'ledger', effect)] });
  });

  it('an operator explains and waits, and needs no more', async () => {
    const inspector = await deskOf('operator');
    const { id } = await app.publisher.publishNow(paid, {}, { subject: '7', unique: 'seven' });
    expect(await inspector.wait(id)).toEqual(ended);
    for (const query of [{ id }, { subject: '7' }, { unique: 'seven' }])
      expect((await inspector.explain(query)).findings).toMatchObject([{ eventId: id, reason: 'handled' }]);
    const { id: later } = await app.publisher.publishNow(paid, {}, { delay: '1h' });
    await expect(inspector.wait(later, { timeout: 0 })).rejects.toMatchObject({
      code: 'OUTBOX_WAIT_TIMEOUT',
      open: [
        { durable: null, reason: 'not-due' },
        { durable: 'ledger', reason: 'not-due' },
      ],
    });
  });

  it('a worker waits; what it may not read is missing from the words of a timeout alone', async () => {
    const inspector = await deskOf('worker');
    const { id } = await app.publisher.publishNow(paid, {});
    expect(await inspector.wait(id)).toEqual(ended);
    const { id: later } = await app.publisher.publishNow(paid, {}, { delay: '1h' });
    await expect(inspector.wait(later, { timeout: 0 })).rejects.toMatchObject({
      code: 'OUTBOX_WAIT_TIMEOUT',
      open: [
        { durable: null, reason: 'open', text: 'not forwarded yet' },
        { durable: 'ledger', reason: 'open' },
      ],
      cause: { code: '42501' },
    });
    await expect(inspector.wait('019a0000-0000-7000-8000-000000000000')).rejects.toThrow(
      /never committed, or is forgotten/,
    );
  });
});
