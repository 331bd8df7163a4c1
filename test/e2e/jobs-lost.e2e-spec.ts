import type { JobContext, RowContext, RowFailedError, TenantFailedError } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { overOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';
import { TcpProxy } from '../support/tcp-proxy.js';

const setup = [
  'CREATE TABLE done (row text)',
  // The connection ends while its COMMIT is under way, and nothing of it is there.
  `CREATE FUNCTION vanish() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
     PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(5); RETURN NULL; END $$`,
  `CREATE CONSTRAINT TRIGGER vanishes AFTER INSERT ON done DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
     WHEN (NEW.row LIKE 'vanishes%') EXECUTE FUNCTION vanish()`,
];

const reasonOf = (work: Promise<unknown>): Promise<AggregateError | undefined> =>
  work.then(
    () => undefined,
    (error) => error,
  );

describe('in a job, a connection that is lost', () => {
  const stage = useStage(...setup);
  const effects = (like: string) =>
    stage.database.value<number>('SELECT count(*)::int FROM done WHERE row LIKE $1', [like]);
  let proxy: TcpProxy;
  /** How often each piece of work was run. */
  const runs = new Map<string, number>();
  const reasons: Record<string, AggregateError | undefined> = {};
  const ran = (what: string): number => {
    runs.set(what, (runs.get(what) ?? 0) + 1);
    return runs.get(what) ?? 0;
  };
  const die = async ({ manager }: Pick<RowContext, 'manager'>) => {
    const [{ pid }] = await manager.query('SELECT pg_backend_pid() AS pid');
    // It dies a moment after it was told to.
    const alive = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1';
    await eventually('it is gone', async () => (await stage.database.query(alive, [pid])).length === 0);
  };

  /** What happens to the connection of a row, or of a tenant. */
  async function work(what: string, context: Pick<RowContext, 'manager'>): Promise<void> {
    const first = ran(what) === 1;
    if (what.includes('lost on the way')) await die(context).catch(() => {});
    if (what.includes('lost once on the way') && first) await die(context).catch(() => {});
    if (what.includes('lost once in a query') && first)
      await context.manager.query('SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)');
    await context.manager.query('INSERT INTO done (row) VALUES ($1)', [what]);
    if (what.startsWith('another')) throw Object.assign(new Error('another service refuses'), { code: 'ECONNREFUSED' });
    if (what.includes('answer to COMMIT is lost') && first) proxy.loseAnswerTo('outbox_commit');
  }

  const rows = [
    'before',
    'row lost once on the way',
    'row lost once in a query',
    'row lost on the way',
    'row, answer to COMMIT is lost',
    'vanishes, row',
    'another of a row',
    'after',
  ];
  const tenants = [
    'tenant lost once on the way',
    'tenant lost once in a query',
    'tenant, answer to COMMIT is lost',
    'vanishes, tenant',
    'another of a tenant',
    'healthy tenant',
  ];

  beforeAll(async () => {
    proxy = await TcpProxy.before(stage.database.url);
    const run = async ({ each, perTenant }: JobContext): Promise<void> => {
      reasons['rows'] = await reasonOf(each(rows, work));
      reasons['tenants'] = await reasonOf(perTenant((context) => work(context.tenantId, context)));
    };
    const app = await stage.boot({
      url: proxy.url,
      outbox: { infrastructure: { url: stage.database.url }, tenancy: { list: async () => tenants } },
      providers: [job('test.lost', yearly, run, { retries: 0 })],
    });
    await tickNow(stage, app, 'test.lost');
    await overOf(stage, 'test.lost');
  });

  afterAll(() => proxy.close());

  it('in the work of a row is not its failure: it is run again, a few times', async () => {
    for (const what of ['row lost once on the way', 'row lost once in a query'])
      expect([what, runs.get(what), await effects(what)]).toEqual([what, 2, 1]);
    expect(runs.get('row lost on the way')).toBe(5);
    expect(await effects('row lost on the way')).toBe(0);
  });

  it('in the COMMIT of a row is: nobody knows whether it is done, so it is not run again', async () => {
    expect(runs.get('row, answer to COMMIT is lost')).toBe(1);
    expect(await effects('row, answer to COMMIT is lost')).toBe(1);
    expect(runs.get('vanishes, row')).toBe(1);
    expect(await effects('vanishes, row')).toBe(0);
    const failed: RowFailedError[] = reasons['rows']?.errors ?? [];
    const lost = expect.stringMatching(
      /^row \d: job test\.lost, row \d: the answer to its COMMIT is lost, it may be done$/,
    );
    expect(failed.map(({ row, message }) => [row, message])).toEqual([
      ['row lost on the way', expect.stringMatching(/^row 3: job test\.lost, row 3: its connection was lost: /)],
      ['row, answer to COMMIT is lost', lost],
      ['vanishes, row', lost],
      ['another of a row', 'row 6: another service refuses'],
    ]);
    expect(await effects('before')).toBe(1);
    expect(await effects('after')).toBe(1);
  });

  it('of a tenant is not its failure, in the COMMIT neither: its mark tells whether it is done', async () => {
    for (const what of ['tenant lost once on the way', 'tenant lost once in a query'])
      expect([what, runs.get(what), await effects(what)]).toEqual([what, 2, 1]);
    // Done: not run again.
    expect(runs.get('tenant, answer to COMMIT is lost')).toBe(1);
    expect(await effects('tenant, answer to COMMIT is lost')).toBe(1);
    // Not done, five times.
    expect(runs.get('vanishes, tenant')).toBe(5);
    expect(await effects('vanishes, tenant')).toBe(0);
    expect(await effects('healthy tenant')).toBe(1);
    const failed: TenantFailedError[] = reasons['tenants']?.errors ?? [];
    expect(failed.map(({ tenantId }) => tenantId)).toEqual(['vanishes, tenant', 'another of a tenant']);
  });

  it('to another service is the failure of a row or a tenant like any other, and not tried again at once', async () => {
    for (const what of ['another of a row', 'another of a tenant'])
      expect([what, runs.get(what), await effects(what)]).toEqual([what, 1, 0]);
  });
});
