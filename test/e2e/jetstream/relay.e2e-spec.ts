import { startNats, type ThrowawayNats } from 'throwaway-nats';
import { eventually } from '../../support/eventually.js';
import { describeWithNats, describeWithOwnNats } from '../../support/nats.js';
import type { WorkerProcess } from '../../support/worker-process.js';
import { backends, FaultSite } from '../faults/fault-site.js';
import { Broker } from './broker.js';

describeWithNats('a relay that is killed after the broker took what it published, and before it left the queue', () => {
  let broker: Broker;
  let site: FaultSite;

  beforeEach(async () => {
    ({ broker, site } = await Broker.withSite('2s'));
  });

  afterEach(() => broker?.close(site));

  const queued = () => site.database.value<number>('SELECT count(*)::int FROM outbox.queue');

  /** Five events of which the broker has the messages, which were handled, and the queue has the rows; their relay is dead. */
  async function published(): Promise<string[]> {
    // What leaves the queue waits until the test lets it.
    await site.database.query(`
      CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_advisory_xact_lock_shared(1, 2); RETURN NULL; END $$;
      CREATE TRIGGER slow BEFORE DELETE ON outbox.queue FOR EACH STATEMENT EXECUTE FUNCTION slow()`);
    const first = await site.worker();
    await site.database.query('SELECT pg_advisory_lock(1, 2)');
    const ids = await site.ask({}, {}, {}, {}, {});
    const [relay] = await backends(site.database, 'nestjs-outbox relay', `wait_event = 'advisory'`);
    await site.handledOnce(ids);
    await broker.answered();
    expect(await broker.messages()).toBe(5);
    await first.kill();
    await site.database.query('SELECT pg_terminate_backend($1)', [relay]);
    await site.database.query('SELECT pg_advisory_unlock(1, 2)');
    expect(await queued()).toBe(5);
    return ids;
  }

  it('the next one publishes again, and the broker knows the ids: no second message', async () => {
    const ids = await published();
    await site.worker();
    await eventually('the queue is empty', async () => (await queued()) === 0);
    expect(await broker.messages()).toBe(5);
    await broker.answered();
    expect(await site.runs()).toEqual(Object.fromEntries(ids.map((id) => [id, 1])));
    expect(await site.interruptions()).toEqual({});
  });

  it('longer ago than the broker knows ids: second messages, which their marks settle', async () => {
    const ids = await published();
    await broker.forgetIds();
    const before = await broker.messages();
    await site.worker();
    await eventually('the queue is empty', async () => (await queued()) === 0);
    expect((await broker.messages()) - before).toBe(5);
    await broker.answered();
    await site.handledOnce(ids);
    expect(await site.runs()).toEqual(Object.fromEntries(ids.map((id) => [id, 1])));
    expect(await site.interruptions()).toEqual({});
    expect(await site.attemptsCharged()).toBe(0);
  });

  it('a second message while the first one is handled waits for its mark, and is settled by it', async () => {
    const worker = await site.worker({ HOLD: 'on' });
    const id = await site.askOne({ hold: true });
    await worker.started(id);
    const installation = await site.database.value<string>('SELECT installation::text FROM outbox.schema_version');
    await broker.publish({ id, installation });
    // Nobody's fault: a row, due in a few seconds.
    await eventually('it waits as a row', () => site.database.value('SELECT count(*)::int FROM outbox.deliveries'));
    worker.go();
    await site.handledOnce([id]);
    await eventually('the row is settled', async () => {
      return (await site.database.value('SELECT count(*)::int FROM outbox.deliveries')) === 0;
    });
    await broker.answered();
    expect(await site.runs()).toEqual({ [id]: 1 });
    expect(await site.interruptions()).toEqual({});
  });
});

describeWithOwnNats('a relay whose rows are locked and which the broker has not answered', () => {
  let server: ThrowawayNats;
  let broker: Broker;
  let site: FaultSite;

  beforeEach(async () => {
    server = await startNats();
    ({ broker, site } = await Broker.withSite('2s', server.url));
  });

  afterEach(async () => {
    await broker?.close(site);
    await server?.stop();
  });

  const queued = () => site.database.value<number>('SELECT count(*)::int FROM outbox.queue');

  /** Twenty events that a worker's relay has locked and sent; the server has not read them. */
  async function sent(): Promise<{ relay: WorkerProcess; ids: string[] }> {
    const relay = await site.worker();
    await site.handledOnce([await site.askOne({})]);
    server.pause();
    const ids = await site.ask(...Array.from({ length: 20 }, () => ({})));
    const locked = `state = 'idle in transaction' AND query LIKE '%FOR UPDATE SKIP LOCKED%'`;
    await backends(site.database, 'nestjs-outbox relay', locked);
    return { relay, ids };
  }

  async function eachOnce(ids: readonly string[]): Promise<void> {
    await eventually('the queue is empty', async () => (await queued()) === 0);
    expect(await broker.messages()).toBe(ids.length + 1);
    await broker.answered();
    for (const n of Object.values(await site.runs())) expect(n).toBe(1);
    expect(await site.attemptsCharged()).toBe(0);
  }

  it('killed: another one forwards them, and each is in the stream once and handled once', async () => {
    const { relay, ids } = await sent();
    await relay.kill();
    expect(await queued()).toBe(20);
    server.unpause();
    await site.worker();
    await site.handledOnce(ids);
    await eachOnce(ids);
  });

  it('paused: others forward what comes at once, and these when Postgres has ended its transaction; it does nothing twice when it wakes', async () => {
    const { relay, ids } = await sent();
    relay.signal('SIGSTOP');
    const stopped = performance.now();
    server.unpause();
    await site.worker();
    const others = await site.ask({}, {}, {});
    await site.handledOnce(others);
    expect(await queued()).toBe(20);
    await eventually('they have left the queue', async () => (await queued()) === 0, 25_000);
    console.log(`rows that a paused relay had locked were forwarded after ${performance.now() - stopped} ms`);
    relay.signal('SIGCONT');
    await site.handledOnce(ids);
    await eachOnce([...ids, ...others]);
  });
});
