import { Client } from 'pg';
import { orderOf } from '../../soak/events.js';
import { type Fault, faultPlan } from '../../soak/plan.js';
import { judgeTicks, type Tick } from '../../soak/tally.js';
import { eventually } from '../support/eventually.js';
import { nothingWrong, nothingWrongWithTheOperator, SoakBench } from '../support/soak.js';

describe('the soak', () => {
  const bench = new SoakBench();
  const soak: SoakBench['run'] = (args, meddle) => bench.run(args, meddle);

  afterEach(() => bench.stop());

  it('loses nothing and repeats nothing while processes are killed and paused, sessions ended and the server restarted', async () => {
    const { code, out, errors } = await soak(['--minutes', '0.3', '--seed', '11', '--events-per-second', '20']);
    const told = out ? JSON.parse(out) : errors;
    expect(told).toMatchObject({
      ...nothingWrong,
      seed: 11,
    });
    const { events, deliveries, kills, restarts, jobSlots, failed } = told;
    expect(events).toBeGreaterThan(50);
    expect(deliveries).toBeGreaterThan(events);
    // A plan begins with one fault of each kind.
    for (const n of [kills.kill, kills.pause, restarts.fast, restarts.immediate]) expect(n).toBeGreaterThan(0);
    for (const n of [jobSlots, failed]) expect(n).toBeGreaterThan(0);
    expect(code).toBe(0);
  }, 240_000);

  it('neither loses nor repeats anything while somebody pauses, cancels, retries and sends again besides', async () => {
    const { code, out, errors } = await soak([
      '--minutes',
      '0.2',
      '--seed',
      '5',
      '--events-per-second',
      '20',
      '--operator',
    ]);
    const told = out ? JSON.parse(out) : errors;
    expect(told).toMatchObject({
      ...nothingWrong,
      operator: { ...nothingWrongWithTheOperator, cancelled: expect.any(Number) },
    });
    const { actions, reads, pausedSeconds, cancelled } = told.operator;
    for (const n of [actions.pause, actions.cancel, reads, pausedSeconds, cancelled]) expect(n).toBeGreaterThan(0);
    expect(code).toBe(0);
  }, 240_000);

  it('is not ok, and says what is wrong, when an effect is missing and another one is there twice', async () => {
    const { code, out, errors } = await soak(['--minutes', '0.05', '--events-per-second', '20'], async (url) => {
      await eventually('two effects are meddled with', async () => {
        // The server may be restarted under it.
        const client = new Client({ connectionString: url });
        client.on('error', () => {});
        await client.connect();
        try {
          return (await client.query(meddleSql)).rowCount === 1;
        } finally {
          await client.end();
        }
      });
    });
    expect(JSON.parse(out || 'null') ?? errors).toMatchObject({
      ok: false,
      lost: 1,
      twice: 1,
      deadByMistake: 0,
      waiting: 0,
    });
    expect(errors.match(/wrong: .*"durable":"ledger","effects":[02],/g)).toHaveLength(2);
    expect(code).toBe(1);
  }, 240_000);

  it('refuses what it does not know, with its usage', async () => {
    const { code, errors } = await soak(['--seed', 'x']);
    expect(errors).toMatch(/--seed must be a whole number below 2\^32\nnpm run soak -- /);
    expect(code).not.toBe(0);
  });

  it('plans the same faults for the same seed, others for another one, and one of each kind first', () => {
    const plan = faultPlan(11, 60_000);
    expect(faultPlan(11, 60_000)).toEqual(plan);
    expect(faultPlan(11, 600_000).slice(0, plan.length)).toEqual(plan);
    expect(faultPlan(12, 60_000)).not.toEqual(plan);
    const kinds = (faults: Fault[]) => faults.map((fault) => ('how' in fault ? fault.how : fault.kind)).sort();
    expect(kinds(plan.slice(0, 5))).toEqual(['fast', 'immediate', 'kill', 'pause', 'terminate']);
    // Those of the broker besides.
    const brokered = faultPlan(11, 60_000, 'jetstream');
    expect(faultPlan(11, 60_000, 'jetstream')).toEqual(brokered);
    expect(kinds(brokered.slice(0, 10).filter(({ kind }) => kind === 'broker'))).toEqual([
      'freeze',
      'kill',
      'kill',
      'stop',
      'wipe',
    ]);
    expect(orderOf(11, 0, 7)).toEqual(orderOf(11, 0, 7));
    expect(new Set(Array.from({ length: 2_000 }, (_, n) => orderOf(11, 1, n).how)).size).toBe(6);
  });

  it('sees runs of the job that met, and sets apart those beside a paused process', () => {
    const run = (pid: number, started: number, ended: number | null): Tick => ({
      slot: new Date(started),
      attempt: 1,
      pid,
      started,
      ended,
    });
    const death = (pid: number, from: number) => ({ pid, from, to: Number.POSITIVE_INFINITY });
    const together = (ticks: Tick[], deaths = [death(9, 0)], pauses = [{ pid: 9, from: 0, to: 1 }]) => {
      const report = judgeTicks(ticks, deaths, pauses);
      return [report.together.length, report.besidePaused.length];
    };
    expect(together([run(1, 0, 10), run(2, 10, 20), run(1, 20, 30)])).toEqual([0, 0]);
    expect(together([run(1, 0, 25), run(2, 10, 12), run(2, 20, 30)])).toEqual([2, 0]);
    expect(together([run(1, 0, null), run(2, 10, 20)])).toEqual([1, 0]);
    expect(together([run(1, 0, null), run(2, 10, 20)], [death(1, 5)])).toEqual([0, 0]);
    expect(together([run(1, 0, null), run(2, 10, 20)], [death(1, 15)])).toEqual([1, 0]);
    expect(together([run(1, 0, 15), run(2, 10, 20)], [], [{ pid: 1, from: 3, to: 14 }])).toEqual([0, 1]);
    expect(together([run(1, 0, 15), run(2, 10, 20)], [], [{ pid: 2, from: 3, to: 14 }])).toEqual([1, 0]);
  });
});

/** Of two effects one is deleted and one is written again. */
const meddleSql = `
WITH two AS (SELECT DISTINCT event_id::text AS id FROM effects WHERE durable = 'ledger' LIMIT 2),
o AS MATERIALIZED (SELECT min(id)::uuid AS gone, max(id)::uuid AS again FROM two HAVING count(*) = 2),
lost AS (DELETE FROM effects f USING o WHERE f.event_id = o.gone AND f.durable = 'ledger')
INSERT INTO effects SELECT f.* FROM effects f JOIN o ON f.event_id = o.again WHERE f.durable = 'ledger'`;
