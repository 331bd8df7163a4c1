import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const type = 'test.wake.asked';

/** Polls this rarely show who was woken and who found by himself. */
const rarely = { relay: { poll: '90s', batch: 5 } } as const;
/** Long before the poll, and long enough for a busy machine. */
const wokenMs = 30_000;

describe('a publisher wakes the workers of other processes', () => {
  const stage = useStage();
  const effects = () => stage.database.value<number>('SELECT count(*)::int FROM effects');
  const worker = () =>
    stage.boot({
      providers: [subscriber(type, 'woken', (e, c) => effect(e, c))],
      manifest: { accepts: [type] },
      outbox: { role: 'worker', schema: { onStart: 'migrate' }, ...rarely },
    });
  const publisher = () => stage.boot({ manifest: { emits: [type] }, outbox: { role: 'publisher', ...rarely } });
  const listening = () =>
    stage.database.value<number>(
      `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nestjs-outbox wake' AND query <> ''`,
    );

  it('at once, long before the poll', async () => {
    await worker();
    const { publisher: events } = await publisher();
    await eventually('the worker listens', listening);
    for (let n = 1; n <= 5; n++) {
      await events.publishNow(type, { n });
      await eventually(`event ${n} is handled`, async () => (await effects()) === n, wokenMs);
    }
  });

  it('again after its connection was ended, and looks once for what it missed', async () => {
    const { publisher: events } = await publisher();
    const before = await effects();
    const [lost] = await stage.database.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nestjs-outbox wake'`,
    );
    await stage.database.query('SELECT pg_terminate_backend($1)', [lost?.pid]);
    await events.publishNow(type, { n: 'missed' });
    await eventually('what was published meanwhile', async () => (await effects()) === before + 1, wokenMs);
    await eventually('a new session listens', async () =>
      stage.database.value<boolean>(
        `SELECT count(*) = 1 AND bool_and(pid <> $1) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'nestjs-outbox wake'`,
        [lost?.pid],
      ),
    );
    await events.publishNow(type, { n: 'after' });
    await eventually('what was published after', async () => (await effects()) === before + 2, wokenMs);
  });

  it('also of what was committed long after it was written', async () => {
    const { publisher: events, dataSource } = await publisher();
    const before = await effects();
    // Brings the relay up to date: the poll that the next commit asks for does not read from the start.
    await events.publishNow(type, { n: 'first' });
    await eventually('the first', async () => (await effects()) === before + 1, wokenMs);
    await dataSource.transaction(async (manager) => {
      await events.publish(type, { n: 'late' });
      await manager.query('SELECT pg_sleep(1.5)');
      // Another one meanwhile: the relay goes on to read from after the one that it cannot see yet.
      await events.publishNow(type, { n: 'second' });
      await eventually('the second', async () => (await effects()) === before + 2, wokenMs);
    });
    await eventually('the late one', async () => (await effects()) === before + 3, wokenMs);
  });

  it('also of more of it than one pass carries', async () => {
    const { publisher: events, dataSource } = await publisher();
    const before = await effects();
    await events.publishNow(type, { n: 'first' });
    await eventually('the first', async () => (await effects()) === before + 1, wokenMs);
    await dataSource.transaction(async (manager) => {
      await events.publishMany(Array.from({ length: 10 }, (_, n) => ({ event: type, payload: { n } })));
      await manager.query('SELECT pg_sleep(1.5)');
      await events.publishNow(type, { n: 'second' });
      await eventually('the second', async () => (await effects()) === before + 2, wokenMs);
    });
    await eventually('all of the late ones', async () => (await effects()) === before + 12, wokenMs);
  });

  it('also of what had to wait for its unique key', async () => {
    const { publisher: events, dataSource } = await publisher();
    const before = await effects();
    await events.publishNow(type, { n: 'first' });
    await eventually('the first', async () => (await effects()) === before + 1, wokenMs);
    const publish = () => events.publish(type, { n: 'unique' }, { unique: 'k' });
    let waiting: Promise<unknown> | undefined;
    const undone = dataSource.transaction(async (manager) => {
      await publish();
      waiting = new Promise((resolve) => setImmediate(resolve)).then(() =>
        events.publishNow(type, { n: 'unique' }, { unique: 'k' }),
      );
      await manager.query('SELECT pg_sleep(2.5)');
      await events.publishNow(type, { n: 'second' });
      await eventually('the second', async () => (await effects()) === before + 2, wokenMs);
      throw new Error('undone');
    });
    await expect(undone).rejects.toThrow('undone');
    await waiting;
    await eventually('the one that waited', async () => (await effects()) === before + 3, wokenMs);
  });
});
