import { Inject, Injectable, Module, type Provider, Scope } from '@nestjs/common';
import { REQUEST } from '@nestjs/core';
import { Cron, CronExpression, Interval, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { TypeOrmModule } from '@nestjs/typeorm';
import {
  type JobSchedule,
  type OutboxBootError,
  OutboxModule,
  type OutboxRootOptions,
  PeriodicJob,
  type PeriodicJobOptions,
} from 'nestjs-outbox';
import { checkOutbox } from 'nestjs-outbox/testing';
import { eventually } from '../support/eventually.js';
import { job, useStage } from '../support/stage.js';
import type { TestAppOptions } from '../support/test-app.js';

const nothing = () => {};
/** As JavaScript, or a configuration file, may hand it over. */
const untyped = <T>(given: unknown): T => given as T;
const list = async () => ['a'];

@Injectable({ scope: Scope.REQUEST })
class PerRequest {
  @PeriodicJob(CronExpression.EVERY_HOUR)
  run(): void {}
}

@Injectable({ scope: Scope.TRANSIENT })
class Transient {
  @PeriodicJob(CronExpression.EVERY_HOUR)
  run(): void {}
}

@Injectable()
class DrawnIn {
  constructor(@Inject(REQUEST) readonly request: unknown) {}

  @PeriodicJob(CronExpression.EVERY_HOUR)
  run(): void {}
}

@Injectable()
class Sweeper {
  @PeriodicJob(CronExpression.EVERY_HOUR)
  sweep(): void {}
}

@Module({ providers: [Sweeper] })
class Another {}

/** Set-ups that are wrong whatever the database is, and what is said of them. */
const wrong: Record<string, { providers: Provider[]; outbox?: OutboxRootOptions; says: RegExp; problems?: number }> =
  {};

const schedules: [name: string, schedule: unknown, says: RegExp][] = [
  ['30 February', '0 0 30 2 *', /cron expression '0 0 30 2 \*' never fires: no date within 8 years/],
  ['a cron of three fields', '* * *', /'\* \* \*' cannot be used: Too few fields \(five fields/],
  ['a minute 61', '61 * * * *', /'61 \* \* \* \*' cannot be used: .*out of range/],
  ['words', 'every day', /'every day' cannot be used: Unknown alias/],
  ['an empty text', '', /'' cannot be used/],
  ['no time at all', { every: '0s' }, /'every' is "0s", which is no duration/],
  ['a tiny interval', { every: '99ms' }, /\{"every":"99ms"\} is neither a cron.* of at least 100 ms/],
  ['an interval in words', { every: '1 sec' }, /'every' is "1 sec", which is no duration; write a number and its unit/],
  ['an interval without a unit', { every: 1_000 }, /'every' is 1000, which is no duration/],
  ['an interval of nothing', {}, /the schedule \{\} is neither a cron expression nor/],
  ['a number', 5, /the schedule 5 is neither/],
  ['null', null, /the schedule null is neither/],
];
for (const [name, schedule, says] of schedules)
  wrong[`the schedule is ${name}`] = { providers: [job('test.job', untyped<JobSchedule>(schedule), nothing)], says };

const options: [name: string, schedule: JobSchedule, options: unknown, says: RegExp][] = [
  [
    'an unknown zone',
    '0 3 * * *',
    { timeZone: 'Europe/Wien' },
    /time zone "Europe\/Wien" is unknown; use a name such as/,
  ],
  ['a zone that is none', '0 3 * * *', { timeZone: 2 }, /time zone 2 is unknown/],
  ['a zone on an interval', { every: '1h' }, { timeZone: 'UTC' }, /an interval has no time zone; leave timeZone out/],
  ['tenants, and nobody lists them', '0 3 * * *', { perTenant: {} }, /perTenant needs the tenants: .*tenancy: \{ list/],
  ['parallel and missed', '0 3 * * *', { parallel: true, missed: 'skip' }, /parallel job .*leave out missed/],
  ['parallel and retries', '0 3 * * *', { parallel: true, retries: 0 }, /parallel job .*leave out retries/],
  ['parallel in words', '0 3 * * *', { parallel: 'no' }, /'parallel' is "no"; it is true or false/],
  ['missed twice', '0 3 * * *', { missed: 'twice' }, /'missed' is "twice"; it is one of 'skip', 'once'/],
  ['negative retries', '0 3 * * *', { retries: -1 }, /'retries' is -1; it is a whole number from 0 to 100/],
  ['too many retries', '0 3 * * *', { retries: 101 }, /'retries' is 101/],
  ['a timeout in words', '0 3 * * *', { timeout: '5 minutes' }, /'timeout' is "5 minutes", which is no duration/],
  ['a timeout of nothing', '0 3 * * *', { timeout: '0s' }, /'timeout' is "0s"/],
  ['a timeout no timer can wait', '0 3 * * *', { timeout: '30d' }, /'timeout' is "30d", longer than a timer can wait/],
  ['an unknown one', '0 3 * * *', { retrys: 3 }, /unknown option 'retrys' — did you mean 'retries'\?/],
];
for (const [name, schedule, given, says] of options)
  wrong[`the options have ${name}`] = {
    providers: [job('test.job', schedule, nothing, untyped<PeriodicJobOptions>(given))],
    says,
  };

const perTenant: [name: string, options: unknown, says: RegExp][] = [
  ['parallel and tenants', { parallel: true, perTenant: {} }, /parallel job .*leave out perTenant/],
  [
    'no tenants at once',
    { perTenant: { concurrency: 0 } },
    /'perTenant\.concurrency' is 0; it is a whole number from 1/,
  ],
  [
    'an unknown one of perTenant',
    { perTenant: { concurency: 2 } },
    /'perTenant\.concurency' — did you mean 'concurrency'\?/,
  ],
  ['a number for perTenant', { perTenant: 4 }, /'perTenant' must be an object/],
];
for (const [name, given, says] of perTenant)
  wrong[`the options have ${name}`] = {
    providers: [job('test.job', '0 3 * * *', nothing, untyped<PeriodicJobOptions>(given))],
    outbox: { tenancy: { list } },
    says,
  };

for (const name of ['', 'a b', 'a/b', 'früh', "it's", 'x'.repeat(101), 'outbox.purge', 7])
  wrong[`the name is ${JSON.stringify(name)}`] = {
    providers: [job(untyped<string>(name), '0 3 * * *', nothing)],
    says: /the name .* is not 1 to 100 letters, .*, or begins with 'outbox\.'/,
  };

for (const type of [PerRequest, Transient, DrawnIn])
  wrong[`the provider is ${type.name}`] = {
    providers: [type],
    says: new RegExp(`@PeriodicJob on ${type.name}\\.run belongs to a request-scoped or transient provider`),
  };

Object.assign(wrong, {
  'two methods have one name': {
    providers: [job('test.job', '0 3 * * *', nothing), job('test.job', { every: '1h' }, nothing)],
    says: /job 'test\.job' is Job\.run and Job\.run: a name stands for one method/,
  },
  // Found by trying; the second half of an advisory lock has 32 bits.
  'two names have one lock key': {
    providers: [job('app.job-4482', '0 3 * * *', nothing), job('app.job-34127', { every: '1h' }, nothing)],
    says: /jobs 'app\.job-4482' \(Job\.run\) and 'app\.job-34127' \(Job\.run\) have the same advisory lock key/,
  },
  'the list of tenants is no function': {
    providers: [job('test.job', '0 3 * * *', nothing, { perTenant: {} })],
    outbox: { tenancy: untyped({ list: ['a', 'b'] }) },
    says: /option 'tenancy\.list' is \["a","b"\]; it is a function/,
  },
});

describe('a wrong job does not boot', () => {
  const stage = useStage();

  async function problems(options: Omit<TestAppOptions, 'url'>): Promise<OutboxBootError['problems']> {
    const error: OutboxBootError = await stage.boot(options).then(
      async (app) => {
        await app.close();
        throw new Error('it booted');
      },
      (reason) => reason,
    );
    expect(error).toMatchObject({ code: 'OUTBOX_BOOT' });
    return error.problems;
  }

  // The server notices the end of a session a moment after its client.
  const nothingStarted = () =>
    eventually('no connection is left', () =>
      stage.database.value<boolean>(
        `SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'nestjs-outbox%')`,
      ),
    );

  /** The same app for a check without a database. */
  function graph(providers: Provider[], outbox: OutboxRootOptions = {}, imports: TestAppOptions['imports'] = []) {
    const nowhere = TypeOrmModule.forRoot({
      type: 'postgres',
      url: 'postgres://nobody@127.0.0.1:1/no',
      retryAttempts: 0,
    });
    return { module: class Graph {}, imports: [nowhere, OutboxModule.forRoot(outbox), ...imports], providers };
  }

  it.each(Object.entries(wrong))('when %s; and checkOutbox says the same', async (_, { providers, outbox, says }) => {
    const found = await problems({ providers, ...(outbox && { outbox }) });
    expect(found.map(({ message }) => message)).toContainEqual(expect.stringMatching(says));
    const others = found.filter(({ check, message }) => check !== 'jobs' && !/tenancy\.list/.test(message));
    expect(others).toEqual([]);
    expect(await checkOutbox(graph(providers, outbox))).toEqual(found);
    await nothingStarted();
  });

  it('when its class is provided in two modules; and checkOutbox says the same', async () => {
    const says =
      /Sweeper\.sweep is provided twice, in (Another|\w+) and in (Another|\w+); provide Sweeper in one module/;
    expect(await problems({ providers: [Sweeper], imports: [Another] })).toEqual([
      { check: 'jobs', message: expect.stringMatching(says) },
    ]);
    expect(await checkOutbox(graph([Sweeper], {}, [Another]))).toEqual([
      { check: 'jobs', message: expect.stringMatching(says) },
    ]);
    await nothingStarted();
  });

  it('when it takes more tenants at once than the pool can spare; what it can spare is enough', async () => {
    const tenants = (concurrency: number) => ({
      providers: [job('test.job', '0 3 * * *', nothing, { perTenant: { concurrency } })],
      outbox: { tenancy: { list } },
    });
    expect(await problems(tenants(9))).toEqual([
      {
        check: 'pool',
        message: expect.stringMatching(/job 'test\.job' \(Job\.run\) runs 9 tenants at once.*at most 8/),
      },
    ]);
    await (await stage.boot(tenants(8))).close();
  });

  it('when the SchedulerRegistry has its name already', async () => {
    const registries: SchedulerRegistry[] = [];
    @Injectable()
    class Mine {
      constructor(registry: SchedulerRegistry) {
        registries.push(registry);
      }

      @Cron('0 3 * * *', { name: 'test.taken' })
      nightly(): void {}

      @Interval('test.taken-too', 60_000)
      often(): void {}
    }
    const imports = [ScheduleModule.forRoot()];
    for (const [name, schedule] of [
      ['test.taken', '0 3 * * *'],
      ['test.taken', { every: '1h' }],
      ['test.taken-too', { every: '1h' }],
    ] as const)
      expect(await problems({ imports, providers: [Mine, job(name, schedule, nothing)] })).toEqual([
        { check: 'jobs', message: expect.stringContaining(`something else under the name of job '${name}'`) },
      ]);
    await nothingStarted();
    // Nest closes nothing of an app that did not boot, its own timers included.
    for (const registry of registries) {
      registry.deleteCronJob('test.taken');
      registry.deleteInterval('test.taken-too');
    }
  });

  it('everything that is wrong is said at once', async () => {
    const found = await problems({
      providers: [
        job('test.job', '0 0 30 2 *', nothing, untyped<PeriodicJobOptions>({ retry: 1, timeout: 'soon' })),
        job('test.other', { every: '1ms' }, nothing),
        PerRequest,
      ],
    });
    expect(found).toHaveLength(5);
    for (const { message } of found) expect(message).toMatch(/^@PeriodicJob on (Job|PerRequest)\.run/);
  });
});

describe('what checkOutbox cannot know of jobs', () => {
  it('the tenants of options that a factory makes are not missed', async () => {
    const root = OutboxModule.forRootAsync({ useFactory: () => ({ tenancy: { list } }) });
    const nowhere = TypeOrmModule.forRoot({
      type: 'postgres',
      url: 'postgres://nobody@127.0.0.1:1/no',
      retryAttempts: 0,
    });
    const providers = [job('test.job', '0 3 * * *', nothing, { perTenant: {} })];
    expect(await checkOutbox({ module: class Graph {}, imports: [nowhere, root], providers })).toEqual([]);
  });
});

describe('a publisher', () => {
  const stage = useStage();

  it('runs no jobs, and lists none; what is wrong with them keeps it from booting all the same', async () => {
    let runs = 0;
    const count = job('test.job', { every: '100ms' }, () => (runs += 1));
    const publisher = await stage.boot({ providers: [count], outbox: { role: 'publisher' } });
    expect(await stage.database.query('SELECT job FROM outbox.job_state')).toEqual([]);
    const worker = await stage.boot({ providers: [job('test.other', { every: '100ms' }, nothing)] });
    await eventually('the worker has run its own twice', () =>
      stage.database.value(`SELECT last_slot - seen_at > '200ms' FROM outbox.job_state WHERE job = 'test.other'`),
    );
    expect(runs).toBe(0);
    expect(await stage.database.query(`SELECT job FROM outbox.job_state WHERE job = 'test.job'`)).toEqual([]);
    await worker.close();
    await publisher.close();
    const wrongOne = job('test.job', '0 0 30 2 *', nothing);
    await expect(stage.boot({ providers: [wrongOne], outbox: { role: 'publisher' } })).rejects.toThrow(/never fires/);
  });
});
