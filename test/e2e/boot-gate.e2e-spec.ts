import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Inject, Injectable, Module, Scope } from '@nestjs/common';
import { REQUEST } from '@nestjs/core';
import {
  type BootProblem,
  memory,
  type OutboxBootError,
  OutboxModule,
  type OutboxRootOptions,
  outboxSchema,
  Subscribe,
} from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { subscriber, useStage } from '../support/stage.js';
import type { TestAppOptions } from '../support/test-app.js';

const event = 'billing.invoice.paid';
const manifest = { emits: [event] };
const nothing = () => {};

@Injectable({ scope: Scope.REQUEST })
class PerRequest {
  @Subscribe(event, 'per-request')
  post(): void {}
}

@Injectable({ scope: Scope.TRANSIENT })
class Transient {
  @Subscribe(event, 'transient')
  post(): void {}
}

@Injectable()
class DrawnIn {
  constructor(@Inject(REQUEST) readonly request: unknown) {}

  @Subscribe(event, 'drawn-in')
  post(): void {}
}

/** Options as JavaScript, or a configuration file, may hand them over. */
const untyped = (options: unknown): OutboxRootOptions => options as OutboxRootOptions;

describe('a wrong set-up does not boot', () => {
  const stage = useStage();

  /** What is running afterwards, on the server's own word. */
  async function nothingStarted(): Promise<void> {
    expect(
      await stage.database.query(
        `SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'nestjs-outbox%'`,
      ),
    ).toEqual([]);
    expect(
      await stage.database.query(
        `SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      ),
    ).toEqual([]);
    const installed = await stage.database.value(`SELECT to_regclass('outbox.workers') IS NOT NULL`);
    if (!installed) return;
    expect(await stage.database.query('SELECT id FROM outbox.workers')).toEqual([]);
    expect(await stage.database.query('SELECT name FROM outbox.durables')).toEqual([]);
  }

  // Were something started after all, the tests that follow should not have to pay for it.
  afterEach(async () => {
    const installed = await stage.database.value<boolean>(`SELECT to_regclass('outbox.workers') IS NOT NULL`);
    if (!installed) return;
    await stage.database.query('TRUNCATE outbox.durables, outbox.durable_types, outbox.workers');
    await stage.database.query('UPDATE outbox.schema_version SET version = 4, min_library = 1');
  });

  async function problems(options: Omit<TestAppOptions, 'url'>): Promise<readonly BootProblem[]> {
    const error: OutboxBootError = await stage.boot(options).then(
      async (app) => {
        await app.close();
        throw new Error('it booted');
      },
      (reason) => reason,
    );
    expect(error).toMatchObject({ name: 'OutboxBootError', code: 'OUTBOX_BOOT' });
    for (const { check, message } of error.problems) {
      expect(error.message).toContain(message);
      expect(error.message).toContain(`[${check}]`);
    }
    return error.problems;
  }

  async function refused(
    options: Omit<TestAppOptions, 'url'>,
    check: string,
    ...says: (RegExp | string)[]
  ): Promise<void> {
    const found = await problems({ manifest, ...options });
    expect(found.map((problem) => problem.check)).toEqual([check]);
    for (const text of says) expect(found[0]?.message).toMatch(text);
    await nothingStarted();
  }

  describe('for want of a schema', () => {
    const verify = { outbox: { schema: { onStart: 'verify' as const } } };
    const owner = async (work: (source: DataSource) => Promise<unknown>) => {
      const source = new DataSource({ type: 'postgres', url: stage.database.url });
      await source.initialize();
      await work(source).finally(() => source.destroy());
    };
    const version = (set: string) => stage.database.query(`UPDATE outbox.schema_version SET ${set}`);

    it('that is missing: it names the migration', () =>
      refused(verify, 'schema', /no outbox schema 'outbox'/, 'await outboxSchema.up(queryRunner, { to: 4 })'));

    it('that is missing under another name', () =>
      refused(
        { outbox: { schema: { name: 'elsewhere', onStart: 'verify' } } },
        'schema',
        /'elsewhere'/,
        /to: 4, schema: 'elsewhere'/,
      ));

    it('that is too old, or too new', async () => {
      await owner((source) => outboxSchema.up(source));
      await owner((source) => outboxSchema.down(source, { to: 1 }));
      await refused(
        verify,
        'schema',
        /is at version 1, this library needs 4/,
        /outboxSchema\.up\(queryRunner, \{ to: 4 \}\)/,
      );
      await owner((source) => outboxSchema.up(source));
      await version('version = 4, min_library = 99');
      await refused(verify, 'schema', /too new for this library; update nestjs-outbox/);
      // A newer schema that says this library can run on it is no reason to refuse: a rollback must work.
      await version('version = 7, min_library = 1');
      await (await stage.boot({ manifest, ...verify })).close();
    });
  });

  describe('for a name', () => {
    it('of a type in @Subscribe', () =>
      refused(
        { providers: [subscriber('Invoice.Paid', 'ledger', nothing)] },
        'names',
        /Subscriber\.handle: "Invoice\.Paid" is no event type/,
        /module\.entity\.verb/,
      ));

    it('of a type in forFeature', () =>
      refused(
        { manifest: { emits: [event, 'billing.invoice'] } },
        'names',
        /forFeature: "billing\.invoice" is no event type/,
      ));

    it.each(['Ledger', 'led.ger', '', 'l'.repeat(65), '1st', 'ledger\n'])('of a durable: %j', (durable) =>
      refused({ providers: [subscriber(event, durable, nothing)] }, 'names', /no durable's name|65 characters/),
    );

    it('of a schema', () =>
      refused(
        { outbox: { schema: { name: 'Out-Box', onStart: 'migrate' } } },
        'options',
        /schema name "Out-Box" is not a plain lower-case identifier/,
      ));
  });

  describe('for its subscriptions', () => {
    it('two methods with one durable', () =>
      refused(
        { providers: [subscriber(event, 'ledger', nothing), subscriber(event, 'ledger', nothing)] },
        'durables',
        /durable 'ledger' is used by Subscriber\.handle and by Subscriber\.handle/,
      ));

    it('a class provided in two modules', async () => {
      @Injectable()
      class Ledger {
        @Subscribe(event, 'ledger')
        post(): void {}
      }
      @Module({ providers: [Ledger] })
      class Other {}
      await refused(
        { providers: [Ledger], imports: [Other] },
        'providers',
        /Ledger has subscriptions and is provided twice, in (Other|TestModule) and in (Other|TestModule)/,
        /Provide it in one module, export it there/,
      );
    });

    it('a type that nobody emits or accepts: the nearest name is suggested', () =>
      refused(
        { providers: [subscriber('billing.invoice.payed', 'ledger', nothing)] },
        'catalog',
        /'billing\.invoice\.payed', which no module of this app emits or accepts — did you mean 'billing\.invoice\.paid'\?/,
      ));

    it('a type that nobody emits and that resembles nothing', async () => {
      const found = await problems({ manifest, providers: [subscriber('crm.contact.merged', 'ledger', nothing)] });
      expect(found[0]?.message).not.toContain('did you mean');
      // To accept it from another app is enough.
      const accepts = { accepts: ['crm.contact.merged'] };
      const app = await stage.boot({
        manifest: accepts,
        providers: [subscriber('crm.contact.merged', 'ledger', nothing)],
      });
      await app.close();
    });

    it('an unknown option', () =>
      refused(
        { providers: [subscriber(event, 'ledger', nothing, JSON.parse('{"maxAttempt":3}'))] },
        'options',
        /@Subscribe on Subscriber\.handle: unknown option 'maxAttempt' — did you mean 'maxAttempts'\?/,
      ));

    it.each([
      ['maxAttempts', { maxAttempts: 0 }, /'maxAttempts' is 0; it is a whole number from 1/],
      ['concurrency', { concurrency: 1.5 }, /'concurrency' is 1\.5/],
      ['timeout', { timeout: '30' }, /'timeout' is "30", which is no duration; write a number and its unit/],
      ['backoff', { backoff: ['1s', 'soon'] }, /'backoff\[1\]' is "soon"/],
      ['an empty backoff', { backoff: [] }, /'backoff' must be a list of at least one duration/],
      ['from', { from: 'start' }, /'from' is "start"; it is one of 'registration', 'beginning'/],
    ])('a bad %s', (_name, options, says) =>
      refused(
        { providers: [subscriber(event, 'ledger', nothing, JSON.parse(JSON.stringify(options)))] },
        'options',
        says,
      ),
    );

    it.each([
      ['request-scoped', PerRequest, 'per-request'],
      ['transient', Transient, 'transient'],
      ['drawn into the request by what it injects', DrawnIn, 'drawn-in'],
    ])('a handler that is %s', (_name, provider, durable) =>
      refused(
        { providers: [provider] },
        'scope',
        new RegExp(
          `${provider.name}\\.post \\(durable '${durable}'\\) belongs to a request-scoped or transient provider`,
        ),
      ),
    );
  });

  describe('for its options', () => {
    it('an unknown one: the nearest name is suggested', () =>
      refused(
        { outbox: untyped({ handler: { concurrency: 2 } }) },
        'options',
        /unknown option 'handler' — did you mean 'handlers'\?/,
        /known: role, transport/,
      ));

    it('an unknown one inside a group', () =>
      refused(
        { outbox: untyped({ relay: { bach: 5 } }) },
        'options',
        /unknown option 'relay\.bach' — did you mean 'batch'\?/,
      ));

    it.each([
      [
        'a duration without unit',
        { drain: 5_000 },
        /'drain' is 5000, which is no duration; write a number and its unit/,
      ],
      ['a duration in words', { relay: { poll: '5 seconds' } }, /'relay\.poll' is "5 seconds"/],
      ['no time at all', { relay: { poll: '0ms' } }, /'relay\.poll' is "0ms"/],
      ['a role', { role: 'consumer' }, /'role' is "consumer"; it is one of 'all', 'worker', 'publisher'/],
      ['a batch of none', { relay: { batch: 0 } }, /'relay\.batch' is 0; it is a whole number from 1 to 5000/],
      [
        'a transport by its name',
        { transport: 'memory' },
        /'transport' must be a transport, such as postgres\(\) or memory\(\)/,
      ],
      ['a group that is no object', { handlers: 4 }, /'handlers' must be an object/],
    ])('%s', (_name, options, says) => refused({ outbox: untyped(options) }, 'options', says));

    it('from a factory as well', async () => {
      const root = OutboxModule.forRootAsync({ useFactory: async () => untyped({ drian: '5s' }) });
      await refused({ root }, 'options', /unknown option 'drian' — did you mean 'drain'\?/);
    });

    // And nothing else is reported: the manifests are in the catalog of one of the two, so the other knows no types.
    it('a second forRoot', () =>
      refused(
        { imports: [OutboxModule.forRoot({ role: 'publisher' })], providers: [subscriber(event, 'ledger', nothing)] },
        'forRoot',
        /is imported 2 times; import it once/,
      ));
  });

  describe('for its pool', () => {
    it('that is too small', () =>
      refused({ typeorm: { poolSize: 2 } }, 'pool', /pool has 2 connections/, /at least 3/));

    it('that explicit concurrency would use up', () =>
      refused(
        { outbox: { handlers: { concurrency: 9 } } },
        'pool',
        /handlers\.concurrency is 9/,
        /leaves at most 8/,
        /raise poolSize to 11/,
      ));

    it('but all that it can spare may be used, and a publisher needs no more than one connection', async () => {
      await (await stage.boot({ manifest, outbox: { handlers: { concurrency: 8 } } })).close();
      await (await stage.boot({ manifest, outbox: { role: 'publisher' }, typeorm: { poolSize: 1 } })).close();
      await nothingStarted();
    });
  });

  describe('for another worker', () => {
    it('two that boot at the same moment: never do both stay', async () => {
      for (let round = 0; round < 5; round++) {
        const booting = [1, 2].map(() => stage.boot({ outbox: { transport: memory() } }));
        const settled = await Promise.allSettled(booting);
        const up = settled.filter((one) => one.status === 'fulfilled');
        expect(up.length).toBeLessThan(2);
        for (const one of up) await one.value.close();
      }
    });

    it('beside which memory() is started', async () => {
      const first = await stage.boot({ manifest });
      const [problem, ...more] = await problems({ manifest, outbox: { transport: memory() } });
      expect(more).toEqual([]);
      expect(problem).toMatchObject({
        check: 'transport',
        message: expect.stringMatching(/memory\(\) is for exactly one process, but worker \d+ .* is alive/),
      });
      expect(await stage.database.query('SELECT exclusive FROM outbox.workers')).toEqual([{ exclusive: false }]);
      await first.close();
      await nothingStarted();
    });

    it('that was started with memory()', async () => {
      const first = await stage.boot({ manifest, outbox: { transport: memory() } });
      const [problem] = await problems({ manifest });
      expect(problem).toMatchObject({
        check: 'transport',
        message: expect.stringMatching(/was started with memory\(\).*start both with postgres\(\)/),
      });
      const [second] = await problems({ manifest, outbox: { transport: memory() } });
      expect(second?.check).toBe('transport');
      // A publisher handles nothing, so it may stand beside it.
      await (await stage.boot({ manifest, outbox: { role: 'publisher' } })).close();
      await first.close();
      await (await stage.boot({ manifest })).close();
      await nothingStarted();
    });
  });

  it('one report names everything at once', async () => {
    const found = await problems({
      manifest: { emits: [event, 'BAD'] },
      providers: [
        subscriber('billing.invoice.payed', 'ledger', nothing),
        subscriber(event, 'ledger', nothing, JSON.parse('{"retries":3}')),
        subscriber(event, 'Mail', nothing),
        PerRequest,
      ],
      outbox: untyped({ drian: '5s', relay: { poll: 'often' }, handlers: { concurrency: 400 } }),
      typeorm: { poolSize: 5 },
    });
    const says = [
      ['options', /unknown option 'drian' — did you mean 'drain'/],
      ['options', /'relay\.poll' is "often"/],
      ['options', /unknown option 'retries'/],
      ['names', /"Mail" is no durable's name/],
      ['names', /"BAD" is no event type/],
      ['durables', /durable 'ledger' is used by/],
      ['scope', /PerRequest\.post/],
      ['catalog', /did you mean 'billing\.invoice\.paid'/],
      ['pool', /handlers\.concurrency is 400/],
    ] as const;
    for (const [check, message] of says) {
      expect(found).toContainEqual({ check, message: expect.stringMatching(message) });
    }
    expect(found).toHaveLength(says.length);
    await nothingStarted();
  });

  it('and its process ends, with an exit code and the report', async () => {
    const child = fork(join(process.cwd(), 'dist/test/support/bad-setup-main.js'), [], {
      env: { ...process.env, DATABASE_URL: stage.database.url, NO_COLOR: '1' },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data) => (output += String(data)));
    const limit = setTimeout(() => child.kill('SIGKILL'), 90_000);
    const [code, signal] = await once(child, 'close');
    clearTimeout(limit);
    expect({ code, signal }).not.toEqual({ code: 0, signal: null });
    expect(signal).not.toBe('SIGKILL');
    expect(output).toMatch(/nestjs-outbox does not start: 1 problem.*did you mean 'billing\.invoice\.paid'/s);
    expect(output).not.toContain('booted');
    await nothingStarted();
  });
});
