import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DemoBench, type EndedDemo, resultOf as result } from '../support/demo.js';
import type { TestDatabase } from '../support/test-database.js';

const jobs = ['audit.retention', 'auth.sweep', 'billing.renew', 'file.sweep', 'heartbeat'];

const serviceOf = (durable: string) => (['ledger', 'receipt-mail'].includes(durable) ? 'money' : 'rest');

describe('the demo', () => {
  let bench: DemoBench;
  let database: TestDatabase;
  let folder: string;

  const demo = (args: readonly string[], options?: Parameters<DemoBench['run']>[1]): Promise<EndedDemo> =>
    bench.run(args, options);

  beforeAll(async () => {
    bench = await DemoBench.open();
    ({ database, folder } = bench);
  });

  afterAll(() => bench?.close());

  afterEach(() => bench.kill());

  it('handles every event once, lets failing mails recover and one end as a dead letter', async () => {
    const ended = await demo(['--once', '--events', '60']);
    // 57 invoices for three durables and 3 blobs for one; two greylisted mails are turned away twice, one mail always.
    expect(result(ended)).toEqual({
      ok: true,
      transport: 'postgres',
      published: 60,
      handled: 57 * 3 + 3 - 1,
      handledTwice: 0,
      lost: 0,
      retried: 2 * 2 + 3,
      deadLetters: 1,
      seconds: expect.any(Number),
      jobTicks: Object.fromEntries(jobs.map((job) => [job, expect.any(Number)])),
      jobRuns: result(ended)['jobTicks'],
    });
    expect(Math.min(...Object.values(result(ended)['jobTicks'] as object))).toBeGreaterThanOrEqual(2);
    expect(ended.code).toBe(0);
    expect(ended.left).toEqual([]);
  });

  it('loses nothing and repeats nothing while its workers are killed at random', async () => {
    const ended = await demo(['--once', '--events', '200', '--workers', '2', '--kill']);
    const { ok, published, handledTwice, lost, kills } = result(ended);
    expect({ ok, published, handledTwice, lost }).toEqual({ ok: true, published: 200, handledTwice: 0, lost: 0 });
    expect(kills).toBeGreaterThan(0);
    expect(ended.code).toBe(0);
    expect(ended.left).toEqual([]);
  }, 180_000);

  it('runs each slot of a job on one of three workers, and beats in all of them, while they are killed', async () => {
    const ended = await demo(['--once', '--events', '200', '--workers', '3', '--kill']);
    const { ok, jobTicks, jobRuns } = result(ended) as Record<'jobTicks' | 'jobRuns', Record<string, number>> & {
      ok: boolean;
    };
    // `ok` has looked at every slot: what was run again had been cut off by a kill, and no tenant's part is run again.
    expect({ ok, errors: ended.errors.match(/^(broken|unfinished): .*$/gm) }).toEqual({ ok: true, errors: null });
    expect(Object.keys(jobTicks)).toEqual(jobs);
    for (const job of jobs) expect(jobTicks[job]).toBeGreaterThanOrEqual(2);
    for (const job of jobs) expect(jobRuns[job]).toBeGreaterThanOrEqual(jobTicks[job] ?? 0);
    expect(jobRuns['heartbeat']).toBeGreaterThan(jobTicks['heartbeat'] ?? 0);
  }, 180_000);

  it('loses nothing and repeats nothing as two services of one image, each with durables of its own', async () => {
    const before = await database.value<Date>('SELECT clock_timestamp()');
    const ended = await demo(['--once', '--events', '200', '--workers', '3', '--services', '--kill']);
    const { ok, published, handledTwice, lost } = result(ended);
    expect({ ok, published, handledTwice, lost }).toEqual({ ok: true, published: 200, handledTwice: 0, lost: 0 });
    const served = await database.query<{ durables: string[] }>(
      `SELECT array_agg(DISTINCT d.name) AS durables FROM outbox.handled h JOIN outbox.durables d ON d.id = h.durable
       WHERE h.started_at > $1 GROUP BY h.worker`,
      [before],
    );
    const kinds = new Set(
      served.map(({ durables }) => durables.map(serviceOf)).map((kind) => [...new Set(kind)].join()),
    );
    expect([...kinds].sort()).toEqual(['money', 'rest']);
    expect(ended.code).toBe(0);
    expect(ended.left).toEqual([]);
  }, 180_000);

  it('shows the jobs of three processes as long as it stays up', async () => {
    const ended = await demo(['--workers', '3'], { until: /^ +heartbeat .*:\d+, .*:\d+, .*:\d+\n/m });
    expect(ended.lines.find((line) => /^ +job +last slot +runs +failed/.test(line))).toBeDefined();
    const [row] = ended.lines.filter((line) => /^ +billing\.renew /.test(line)).slice(-1);
    expect(row).toMatch(/^ +billing\.renew +\d\d:\d\d:\d\d +\d+ +\d+ +\d+ +\S+:\d+$/);
    expect(ended.code).toBe(0);
    expect(ended.left).toEqual([]);
  }, 120_000);

  describe('its jobs', () => {
    // The tables are the demo's own; a run makes them.
    beforeAll(async () => {
      await demo(['--once', '--events', '1']);
    });

    it('do their work, one tenant failing and nobody else', async () => {
      const [{ last } = { last: '0' }] = await database.query('SELECT coalesce(max(id), 0) AS last FROM demo.job_log');
      await database.query(
        `INSERT INTO demo.uploads (id, path, begun_at) VALUES (gen_random_uuid(), 'old.blob', now() - interval '1 hour')`,
      );
      const ended = await demo(['--once', '--events', '40']);
      expect(result(ended)['ok']).toBe(true);
      const results = await database.query(
        `SELECT job, tenant_id, bool_and(error IS NOT NULL) AS failed, coalesce(sum(result), 0) > 0 AS worked
         FROM demo.job_log WHERE id > $1 AND job <> 'heartbeat' GROUP BY job, tenant_id ORDER BY job, tenant_id`,
        [last],
      );
      expect(results).toEqual([
        { job: 'audit.retention', tenant_id: null, failed: false, worked: true },
        { job: 'auth.sweep', tenant_id: null, failed: false, worked: true },
        { job: 'billing.renew', tenant_id: 'acme', failed: false, worked: true },
        { job: 'billing.renew', tenant_id: 'globex', failed: false, worked: true },
        { job: 'billing.renew', tenant_id: 'initech', failed: true, worked: false },
        { job: 'file.sweep', tenant_id: null, failed: false, worked: true },
      ]);
      // The row behind the card that is declined.
      expect(await database.value(`SELECT count(*) > 0 FROM demo.renewals WHERE tenant_id = 'initech'`)).toBe(true);
    });

    // As if nobody had recorded the end of a slot's first attempt: however late the next look is, it takes the slot up.
    const forgetful = (job: string) => [
      `CREATE FUNCTION demo.sabotage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        DELETE FROM outbox.job_tenants WHERE job = NEW.job;
        OLD.worker := NULL;
        RETURN OLD; END $$`,
      `CREATE TRIGGER sabotage BEFORE UPDATE ON outbox.job_state FOR EACH ROW
        WHEN (NEW.job = '${job}' AND OLD.attempt = 1 AND OLD.outcome IS NULL AND NEW.outcome IS NOT NULL) EXECUTE FUNCTION demo.sabotage()`,
    ];
    const doctored = (event: 'INSERT' | 'UPDATE', job: string, change: string) => [
      `CREATE FUNCTION demo.sabotage() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.${change}; RETURN NEW; END $$`,
      `CREATE TRIGGER sabotage BEFORE ${event} ON demo.job_log FOR EACH ROW WHEN (NEW.job = '${job}') EXECUTE FUNCTION demo.sabotage()`,
    ];
    const card = (tenant: string, number: string) => [
      `UPDATE demo.subscriptions SET card = '${number}' WHERE tenant_id = '${tenant}' AND plan = 'basic'`,
    ];

    afterEach(async () => {
      await database.query('DROP FUNCTION IF EXISTS demo.sabotage() CASCADE');
      for (const sql of [...card('acme', 'visa 4242'), ...card('initech', 'declined 0002')]) await database.query(sql);
    });

    it.each([
      ['a slot is run again', forgetful('auth.sweep'), /^broken: auth\.sweep: slot \S+ was run \d+ times$/m],
      [
        'a slot is run again for tenants that had been run',
        forgetful('billing.renew'),
        /^broken: billing\.renew: slot \S+, tenant acme was run \d+ times$/m,
      ],
      [
        'two runs overlap',
        doctored('UPDATE', 'file.sweep', `ended_at := NEW.ended_at + interval '1 hour'`),
        /^broken: file\.sweep: slot \S+ was begun by \S+ before the run before it had ended$/m,
      ],
      [
        'the failing tenant does not fail',
        card('initech', 'visa 1111'),
        /^broken: billing\.renew: slot \S+, tenant initech did not fail$/m,
      ],
      [
        'another tenant fails',
        card('acme', 'declined 0001'),
        /^broken: billing\.renew: slot \S+, tenant acme failed: .*card declined: declined 0001$/m,
      ],
      [
        'a process that lives does not beat',
        doctored('INSERT', 'heartbeat', `worker := 'elsewhere'`),
        /^unfinished: heartbeat: process \S+ lives and does not beat$/m,
      ],
    ])(
      'are not ok when %s',
      async (_, sabotage, words) => {
        for (const sql of sabotage) await database.query(sql);
        const ended = await demo(['--once', '--events', '5']);
        expect({ ...result(ended), errors: ended.errors }).toMatchObject({
          ok: false,
          lost: 0,
          handledTwice: 0,
          errors: expect.stringMatching(words),
        });
        expect(ended.code).toBe(1);
      },
      120_000,
    );
  });

  it('publishes the lines of a file, and names the line that is at fault', async () => {
    const file = join(folder, 'events.ndjson');
    const paid = {
      type: 'billing.invoice.paid',
      tenant: 'acme',
      payload: { invoiceId: '1', cents: 100, email: 'a@b.c' },
    };
    await writeFile(file, `${JSON.stringify(paid)}\n${JSON.stringify({ ...paid, tenant: 'initech' })}\n`);
    const good = await demo(['--once', '--input', file]);
    expect(result(good)).toMatchObject({ ok: true, published: 2, handled: 6, deadLetters: 0 });
    await writeFile(file, `${JSON.stringify(paid)}\n{"type":"billing.invoice.paid"\n`);
    const bad = await demo(['--once', '--input', file]);
    expect(bad.errors).toMatch(/^demo: .*events\.ndjson, line 2: is no JSON.*\n$/);
    expect(bad.code).toBe(2);
  });

  it.each([
    [['--nonsense'], /^demo: Unknown option '--nonsense'.*\n$/],
    [['--workers', '1', '--services'], /^demo: --services needs --workers N with N of 2 or more.*\n$/],
    [['--transport', 'pigeon'], /^demo: --transport is 'pigeon'; it is postgres or jetstream .*\n$/],
    [['--once', '--events', 'many'], /^demo: --events is 'many'; it is a whole number.*\n$/],
    [['--once', '--input', '/nowhere/events.ndjson'], /^demo: there is no file \/nowhere\/events\.ndjson\n$/],
  ])('refuses %j with one line', async (args, line) => {
    const ended = await demo(args);
    expect(ended.errors).toMatch(line);
    expect(ended.code).toBe(2);
  });

  it('says in one line how to come by a nats-server, and starts and fetches nothing', async () => {
    const env = { NATS_SERVER_BIN: join(folder, 'nats-server'), OUTBOX_TEST_INSTALL: 'apt' };
    const ended = await demo(['--once', '--transport', 'jetstream'], { env });
    expect(ended.errors).toBe(
      'demo: there is no nats-server: apt-get install nats-server, or name one in NATS_SERVER_BIN\n',
    );
    expect(ended.code).toBe(1);
    expect(ended.left).toEqual([]);
  });

  it('says in one line that the database cannot be reached', async () => {
    const ended = await demo(['--once'], { env: { DATABASE_URL: 'postgres://nobody:secret@127.0.0.1:1/absent' } });
    expect(ended.errors).toMatch(/^demo: cannot connect to the database 127\.0\.0\.1:1\/absent: .*ECONNREFUSED.*\n$/);
    expect(ended.errors).not.toContain('secret');
    expect(ended.code).toBe(1);
  });
});
