import type { JobContext, PeriodicJobOptions } from 'nestjs-outbox';
import { eventually, gate } from '../support/eventually.js';
import { missed, overOf, runsOf, stateOf, tickNow, yearly } from '../support/jobs.js';
import { job, useStage } from '../support/stage.js';

/** Slots and jobs that were run. */
interface Ran {
  readonly job: string;
  readonly slot: Date;
}

/** A job that ticks all the time: so often every job of this app has been looked at. */
function metronome(name = 'test.metronome') {
  let ticks = 0;
  const looks = async (count: number): Promise<void> => {
    const from = ticks;
    for (let n = 1; n <= count; n++) await eventually(`tick ${n} of ${count}`, () => ticks >= from + n);
  };
  return { provider: job(name, { every: '100ms' }, () => (ticks += 1)), looks };
}

function recorder() {
  const ran: Ran[] = [];
  const of = (name: string) => ran.filter((run) => run.job === name);
  const record = ({ job: name, slot }: JobContext): void => void ran.push({ job: name, slot });
  return { of, record };
}

describe('the schedule of a job', () => {
  const stage = useStage();

  /** A cron of every hour whose last slot is about half an hour old, by the database's clock. */
  async function hourly(): Promise<{ expression: string; slot: Date }> {
    const slot = await stage.database.value<Date>(
      `SELECT date_trunc('minute', clock_timestamp() - interval '30 minutes')`,
    );
    return { expression: `${slot.getUTCMinutes()} * * * *`, slot };
  }

  it('begins when it is registered: nothing of the past is caught up', async () => {
    const { of, record } = recorder();
    const { provider, looks } = metronome();
    const { expression } = await hourly();
    const once: PeriodicJobOptions = { missed: 'once' };
    const before = await stage.database.value<Date>('SELECT clock_timestamp()');
    const app = await stage.boot({
      providers: [
        provider,
        job('test.new-cron', expression, record, once),
        job('test.new-year', yearly, record, once),
        job('test.new-interval', { every: '1h' }, record, once),
        job('test.new-long', { every: '90d' }, record, once),
      ],
    });
    await looks(8);
    for (const name of ['test.new-cron', 'test.new-year', 'test.new-interval', 'test.new-long']) {
      expect(of(name)).toEqual([]);
      const state = await stateOf(stage, name);
      expect(Number(state?.last_slot)).toBeGreaterThanOrEqual(Number(before));
      expect(state).toMatchObject({ running_slot: null, outcome: null });
    }
    await app.close();
  });

  it('that changed begins now; the old one is not caught up, nor is the new', async () => {
    const { of, record } = recorder();
    const { expression } = await hourly();
    const first = metronome();
    const old = await stage.boot({ providers: [first.provider, job('test.changed', yearly, record)] });
    await first.looks(3);
    await old.close();
    await missed(stage, 'test.changed');
    const second = metronome();
    const now = await stage.database.value<Date>('SELECT clock_timestamp()');
    const app = await stage.boot({ providers: [second.provider, job('test.changed', expression, record)] });
    await second.looks(8);
    expect(of('test.changed')).toEqual([]);
    const state = await stateOf(stage, 'test.changed');
    expect(state).toMatchObject({ schedule: `cron ${expression} UTC`, former: [`cron ${yearly} UTC`] });
    expect(Number(state?.last_slot)).toBeGreaterThanOrEqual(Number(now));
    await app.close();
  });

  it('runs the last slot of a downtime late, once, when what was missed is run once; else none', async () => {
    const { of, record } = recorder();
    const { expression, slot } = await hourly();
    const providers = () => [
      job('test.cron-once', expression, record),
      job('test.cron-skip', expression, record, { missed: 'skip' }),
      job('test.zone-once', expression, record, { timeZone: 'Asia/Kathmandu' }),
      job('test.interval-once', { every: '90d' }, record, { missed: 'once' }),
      job('test.interval-skip', { every: '90d' }, record),
    ];
    const names = ['cron-once', 'cron-skip', 'zone-once', 'interval-once', 'interval-skip'].map((n) => `test.${n}`);
    const before = metronome();
    const first = await stage.boot({ providers: [before.provider, ...providers()] });
    await before.looks(3);
    await first.close();
    for (const name of names) {
      expect(of(name)).toEqual([]);
      await missed(stage, name);
    }
    const after = metronome();
    const apps = await Promise.all(
      [after.provider, undefined].map((extra) =>
        stage.boot({ providers: [...(extra ? [extra] : []), ...providers()] }),
      ),
    );
    await after.looks(15);
    // By the other one, perhaps.
    for (const name of ['cron-once', 'zone-once', 'interval-once']) await overOf(stage, `test.${name}`);
    const quarter = 90 * 24 * 3_600_000;
    expect(of('test.cron-once').map((run) => run.slot)).toEqual([slot]);
    expect(of('test.zone-once').map((run) => run.slot)).toHaveLength(1);
    // 5:45 ahead of UTC.
    expect(of('test.zone-once')[0]?.slot.getUTCMinutes()).toBe((slot.getUTCMinutes() + 15) % 60);
    expect(of('test.interval-once')).toHaveLength(1);
    expect(Number(of('test.interval-once')[0]?.slot) % quarter).toBe(0);
    expect(Date.now() - Number(of('test.interval-once')[0]?.slot)).toBeLessThan(quarter);
    expect(of('test.cron-skip')).toEqual([]);
    expect(of('test.interval-skip')).toEqual([]);
    expect(await runsOf(stage, 'test.cron-once')).toMatchObject([{ slot, attempt: 1, outcome: 'done' }]);
    expect(await stateOf(stage, 'test.cron-once')).toMatchObject({ last_slot: slot, outcome: 'done' });
    for (const app of apps) await app.close();
  });

  it('of two versions side by side only the newer one runs; the older one goes quiet, and again ticks when it is alone', async () => {
    const { of, record } = recorder();
    const ran = { old: [] as Date[], new: [] as Date[] };
    const version = (which: 'old' | 'new', every: '70ms' | '100ms' | '130ms') =>
      job('test.deployed', { every }, ({ slot }) => void ran[which].push(slot));
    const old = await stage.boot({
      providers: [version('old', '100ms'), job('test.other', { every: '100ms' }, record)],
    });
    await eventually('the old version ticks', () => ran.old.length >= 3);
    const next = await stage.boot({ providers: [version('new', '130ms')] });
    await eventually('the new version ticks', () => ran.new.length >= 1);
    const last = ran.old.length;
    await eventually('the new version goes on, and so does what has not changed', () => {
      return ran.new.length >= 10 && of('test.other').length >= 10;
    });
    // One may have been under way.
    expect(ran.old.length - last).toBeLessThanOrEqual(1);
    expect(ran.new.every((slot) => slot.getTime() % 130 === 0)).toBe(true);
    await next.close();
    // A rollback: nobody has had the new one for a minute.
    await stage.database.query(
      `UPDATE outbox.job_state SET seen_at = seen_at - interval '2 minutes' WHERE job = 'test.deployed'`,
    );
    const again = ran.old.length;
    await eventually('the old version ticks again', () => ran.old.length >= again + 3, 40_000);
    expect(await stateOf(stage, 'test.deployed')).toMatchObject({ schedule: 'every 100', former: ['every 130'] });
    await old.close();
  });

  it('does not let a job run beside itself: slots that come while it runs are late or skipped', async () => {
    const held = gate();
    const slots: Date[] = [];
    let running = 0;
    let most = 0;
    const slow = async ({ slot }: JobContext): Promise<void> => {
      slots.push(slot);
      most = Math.max(most, ++running);
      if (slots.length === 1) await held.passed;
      running -= 1;
    };
    const { provider, looks } = metronome();
    const providers = () => [job('test.slow', { every: '100ms' }, slow)];
    const apps = await Promise.all([
      stage.boot({ providers: [provider, ...providers()] }),
      stage.boot({ providers: providers() }),
    ]);
    await eventually('it runs', () => slots.length === 1);
    await looks(10);
    expect(slots).toHaveLength(1);
    held.open();
    await eventually('it goes on', () => slots.length >= 5);
    expect(most).toBe(1);
    for (const app of apps) await app.close();
  });

  it('a job whose row was removed begins anew', async () => {
    let runs = 0;
    const app = await stage.boot({ providers: [job('test.removed', yearly, () => (runs += 1))] });
    await tickNow(stage, app, 'test.removed');
    await eventually('it has run', () => runs === 1);
    await stage.database.query(`DELETE FROM outbox.job_state WHERE job = 'test.removed'`);
    await tickNow(stage, app, 'test.removed');
    await eventually('it has run again', () => runs === 2);
    await app.close();
  });
});
