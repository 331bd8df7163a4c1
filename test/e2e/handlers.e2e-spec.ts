import type { DeliveryContext } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

type Abuse = (context: DeliveryContext) => unknown;

const throwing =
  (make: () => unknown): Abuse =>
  () => {
    throw make();
  };
const withGetter = (name: string, what: () => never) =>
  Object.defineProperty(new Error('boom'), name, { get: what, configurable: true });
const failing = (): never => {
  throw new Error('then');
};
const loop = () => {
  const a: Record<string, unknown> = {};
  const b = { driverError: a };
  a['driverError'] = b;
  return a;
};

/** What a handler may throw; each is a failed attempt and nothing more. */
const thrown: Record<string, Abuse> = {
  undefined: throwing(() => undefined),
  null: throwing(() => null),
  frozen: throwing(() => Object.freeze(new Error('frozen'))),
  symbol: throwing(() => Symbol('s')),
  bigint: throwing(() => 1n),
  nullproto: throwing(() => Object.create(null)),
  codegetter: throwing(() =>
    withGetter('code', () => {
      throw new Error('in the getter');
    }),
  ),
  codegetterundefined: throwing(() =>
    withGetter('code', () => {
      throw undefined;
    }),
  ),
  codegetternull: throwing(() =>
    withGetter('code', () => {
      throw null;
    }),
  ),
  stackgetter: throwing(() =>
    withGetter('stack', () => {
      throw undefined;
    }),
  ),
  proxy: throwing(
    () =>
      new Proxy(
        {},
        {
          has: () => {
            throw undefined;
          },
          get: () => {
            throw undefined;
          },
        },
      ),
  ),
  drivererrors: throwing(loop),
  arraystack: throwing(() => Object.assign(new Error('boom'), { stack: ['boom'] })),
  huge: throwing(() => new Error('x'.repeat(20_000_000))),
  thenable: () => Object.defineProperty({}, 'then', { get: () => failing() }),
  rejectsundefined: () => Promise.reject(undefined),
  aggregate: throwing(() => new AggregateError([new Error('a')], 'agg')),
};

describe('whatever a handler throws', () => {
  const stage = useStage();
  const rejections: unknown[] = [];
  const note = (error: unknown) => rejections.push(error);
  beforeAll(() => process.on('unhandledRejection', note));
  afterAll(() => process.off('unhandledRejection', note));

  for (const [name, abuse] of Object.entries(thrown))
    it(`${name}: is one failed attempt, no interruption, and no unhandled rejection`, async () => {
      const app = await stage.boot({
        manifest: { emits: [`test.${name}.asked`] },
        providers: [
          subscriber(
            `test.${name}.asked`,
            `worker-${name}`,
            async (event, context) => {
              await effect(event, context);
              if (context.attempt === 1) return abuse(context);
              return undefined;
            },
            { backoff: ['50ms'], maxAttempts: 3 },
          ),
        ],
      });
      const { id } = await app.publisher.publishNow(`test.${name}.asked`, {});
      await eventually('handled', () =>
        stage.database.value(`SELECT count(*)::int FROM outbox.handled WHERE event_id = $1 AND verdict = 'd'`, [id]),
      ).catch((e: Error) => {
        throw new Error(`${e.message}\n${app.log.lines.slice(-5).join('\n')}\nunhandled: ${rejections.length}`);
      });
      expect(await stage.database.query('SELECT n FROM outbox.attempts WHERE event_id = $1', [id])).toEqual([{ n: 1 }]);
      expect(rejections).toEqual([]);
      await app.close();
    });
});

const runnerOf = (context: DeliveryContext) => {
  const runner = context.manager.queryRunner;
  if (!runner) throw new Error('no runner');
  return runner;
};

/** What a handler may do to its connection; the mark may stand or the delivery may fail, but the two never part. */
const done: Record<string, Abuse> = {
  release: (c) => runnerOf(c).release(),
  rollback: (c) => runnerOf(c).rollbackTransaction(),
  committransaction: (c) => runnerOf(c).commitTransaction(),
  rollbackbegin: (c) => c.manager.query('ROLLBACK; BEGIN'),
  commitbegin: (c) => c.manager.query('COMMIT; BEGIN'),
  setsession: (c) => c.manager.query("SET SESSION lock_timeout = '1ms'; SET SESSION statement_timeout = '5s'"),
  listen: (c) => c.manager.query('LISTEN something'),
  cursor: (c) => c.manager.query('DECLARE k CURSOR WITH HOLD FOR SELECT 1; FETCH 1 FROM k'),
  copy: (c) => c.manager.query('COPY (SELECT 1) TO STDOUT'),
  setrole: (c) => c.manager.query('CREATE TEMP TABLE IF NOT EXISTS t (x int) ON COMMIT DROP'),
  prepared: (c) => c.manager.query(`PREPARE TRANSACTION 'x'`),
  advisory: (c) => c.manager.query('SELECT pg_advisory_lock(4711)'),
};

describe('whatever a handler does to its connection', () => {
  const stage = useStage();

  for (const [name, abuse] of Object.entries(done))
    it(`${name}: mark and effect never part, and the app works on`, async () => {
      const app = await stage.boot({
        manifest: { emits: [`test.${name}.asked`, `test.${name}x.asked`] },
        typeorm: { poolSize: 4 },
        providers: [
          subscriber(
            `test.${name}.asked`,
            `worker-${name}`,
            async (event, context) => {
              await effect(event, context);
              if (context.attempt === 1) await abuse(context);
            },
            { backoff: ['50ms'], maxAttempts: 3 },
          ),
          subscriber(`test.${name}x.asked`, `other-${name}`, (event, context) => effect(event, context), {
            backoff: ['50ms'],
          }),
        ],
      });
      const { id } = await app.publisher.publishNow(`test.${name}.asked`, {});
      await eventually('decided', () =>
        stage.database.value(`SELECT count(*)::int FROM outbox.handled WHERE event_id = $1`, [id]),
      ).catch((e: Error) => {
        throw new Error(`${e.message}\n${app.log.lines.slice(-5).join('\n')}`);
      });
      const ids = await Promise.all(
        Array.from({ length: 12 }, async () => (await app.publisher.publishNow(`test.${name}x.asked`, {})).id),
      );
      await eventually(
        'the others are handled',
        async () =>
          (await stage.database.value(
            `SELECT count(*)::int FROM outbox.handled WHERE event_id = ANY($1::uuid[]) AND verdict = 'd'`,
            [ids],
          )) === 12,
      ).catch((e: Error) => {
        throw new Error(`${e.message}\n${app.log.lines.slice(-5).join('\n')}`);
      });
      const effects = await stage.database.query(
        `SELECT event_id, count(*)::int AS n FROM effects WHERE event_id = ANY($1::uuid[]) GROUP BY 1 HAVING count(*) <> 1`,
        [[id, ...ids]],
      );
      expect(effects).toEqual([]);
      await app.close();
    });
});
