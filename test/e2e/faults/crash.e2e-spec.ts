import { eventually } from '../../support/eventually.js';
import { backends, FaultSite, holdTable } from './fault-site.js';

/** Within two seconds, promised; the bound leaves room for a busy machine. */
const elsewhereMs = 10_000;

describe('a crash loses nothing', () => {
  let site: FaultSite;

  beforeEach(async () => {
    site = await FaultSite.open();
  });

  afterEach(() => site?.close());

  const leased = () =>
    site.database.value<number>('SELECT count(*)::int FROM outbox.deliveries WHERE lease IS NOT NULL');

  it('killed in the middle of a handler: the delivery runs elsewhere within seconds, and one interruption is charged', async () => {
    const first = await site.worker({ HOLD: 'on' });
    const id = await site.askOne({ hold: true });
    await first.started(id);
    const second = await site.worker();
    await first.kill();
    const killed = performance.now();
    await second.started(id);
    expect(performance.now() - killed).toBeLessThan(elsewhereMs);
    await site.handledOnce([id]);
    expect(await site.interruptions()).toEqual({ [id]: 1 });
    expect(await site.attemptsCharged()).toBe(0);
  });

  it('killed with 20 fetched and not started: each is handled once, and charged once however many workers sweep', async () => {
    const first = await site.worker({ HOLD: 'on' });
    const ids = await site.ask(...Array.from({ length: 24 }, () => ({ hold: true })));
    await eventually('four run and 20 wait in memory', async () => {
      const started = first.reports.filter((report) => report.kind === 'started').length;
      return started === 4 && (await leased()) === 24;
    });
    await Promise.all([site.worker(), site.worker()]);
    await first.kill();
    const killed = performance.now();
    await site.handledOnce(ids);
    expect(performance.now() - killed).toBeLessThan(elsewhereMs);
    expect(await site.interruptions()).toEqual(Object.fromEntries(ids.map((id) => [id, 1])));
    expect(Object.values(await site.runs()).sort()).toEqual([...Array(20).fill(1), ...Array(4).fill(2)]);
    expect(await site.attemptsCharged()).toBe(0);
  });

  it('killed between fan-out and hand-over: another worker runs each once', async () => {
    const first = await site.worker();
    const held = await holdTable(site.database, 'outbox.deliveries');
    const ids = await site.ask({}, {}, {});
    await backends(site.database, 'nestjs-outbox relay', `wait_event_type = 'Lock'`);
    // Stopped, it does not read the answer; the server goes on without it and leases the rows to it.
    first.signal('SIGSTOP');
    await held.release();
    await eventually('the rows are leased', async () => (await leased()) === 3);
    expect(await site.runs()).toEqual({});
    await first.kill();
    await site.worker();
    await site.handledOnce(ids);
    expect(await site.interruptions()).toEqual(Object.fromEntries(ids.map((id) => [id, 1])));
    expect(await site.runs()).toEqual(Object.fromEntries(ids.map((id) => [id, 1])));
  });

  it.each([
    ['and the server never learns of it', false],
    ['and the server ends its session', true],
  ])('killed inside the fan-out, %s: the rows are in the queue still, and are handled once', async (_, ended) => {
    const first = await site.worker();
    const held = await holdTable(site.database, 'outbox.deliveries');
    const ids = await site.ask({}, {}, {});
    const [relay] = await backends(site.database, 'nestjs-outbox relay', `wait_event_type = 'Lock'`);
    await first.kill();
    expect(await site.database.value('SELECT count(*)::int FROM outbox.queue')).toBe(3);
    expect(await site.database.value('SELECT count(*)::int FROM outbox.deliveries')).toBe(0);
    if (ended) await site.database.query('SELECT pg_terminate_backend($1)', [relay]);
    await held.release();
    await site.worker();
    await site.handledOnce(ids);
    expect(await site.runs()).toEqual(Object.fromEntries(ids.map((id) => [id, 1])));
  });

  it('killed between COMMIT and its answer: mark and effect are there once, and nothing runs again', async () => {
    const first = await site.worker();
    const id = await site.askOne({ crashAtCommit: true });
    await first.gone();
    await site.handledOnce([id]);
    const second = await site.worker();
    await eventually(
      'the dead worker is swept',
      async () => {
        return (await site.database.value('SELECT count(*)::int FROM outbox.workers')) === 1;
      },
      30_000,
    );
    const after = await site.askOne({});
    await second.started(after);
    await site.handledOnce([id, after]);
    expect(await site.runs()).toEqual({ [id]: 1, [after]: 1 });
    expect(await site.interruptions()).toEqual({});
  });

  describe('killed during a COMMIT', () => {
    const committing = `datname = current_database() AND query LIKE 'COMMIT%' AND wait_event = 'advisory'`;
    const commits = () => site.database.query(`SELECT pid FROM pg_stat_activity WHERE ${committing}`);

    beforeEach(() =>
      site.database.query(`
        CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF (SELECT count(*) FROM runs r WHERE r.event_id = new.event_id) = 1 THEN PERFORM pg_advisory_xact_lock_shared(1, 2); END IF;
          RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow();
        SELECT pg_advisory_lock(1, 2)`),
    );

    const letCommit = () => site.database.query('SELECT pg_advisory_unlock(1, 2)');

    it('that goes through: the work is done, and nobody runs it again', async () => {
      const first = await site.worker();
      const id = await site.askOne({});
      await eventually('the COMMIT is under way', async () => (await commits()).length === 1);
      await first.kill();
      const second = await site.worker();
      expect(await commits()).toHaveLength(1);
      await letCommit();
      await site.handledOnce([id]);
      await second.started(await site.askOne({}));
      expect((await site.runs())[id]).toBe(1);
      expect(await site.interruptions()).toEqual({});
      await eventually('the other one is committed', async () => {
        return (await site.database.value('SELECT count(*)::int FROM effects')) === 2;
      });
    });

    it('that does not: it runs elsewhere, charged once', async () => {
      const first = await site.worker();
      const id = await site.askOne({});
      await eventually('the COMMIT is under way', async () => (await commits()).length === 1);
      await first.kill();
      await site.worker();
      await site.database.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${committing}`);
      await letCommit();
      await site.handledOnce([id]);
      expect((await site.runs())[id]).toBe(2);
      expect(await site.interruptions()).toEqual({ [id]: 1 });
    });
  });
});
