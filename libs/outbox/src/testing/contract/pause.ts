import assert from 'node:assert/strict';
import type { PauseTarget } from '../../inspect/pauses.js';
import { until } from '../probe-app.js';
import { alone, type Contract, type Crew } from './crew.js';
import type { Stage } from './stage.js';

/** What is paused does not run, anywhere; it loses nothing. */
export function pausing(contract: Contract, crew: Crew): void {
  crew.group('pause', (test) => {
    test('a durable: others go on, and nothing is lost', { durables: { one: {}, two: {} } }, async (stage) => {
      await stage.inspector.pause({ durable: stage.durable() });
      const ids: string[] = [];
      for (let n = 0; n < 10; n++) ids.push(await stage.publish(n));
      for (const id of ids) await stage.reaches(id, 'completed', 'two');
      for (const id of ids) await stage.parked(id);
      assert.deepEqual(runsOf(stage, 'one'), []);
      assert.equal(await stage.inspector.resume({ durable: stage.durable() }), true);
      await stage.handled(...ids);
      assert.equal(runsOf(stage, 'one').length, 10);
    });

    test('a type, or a pattern of types', { types: ['asked', 'told', 'sung'] }, async (stage) => {
      await stage.inspector.pause({ type: stage.type('told') });
      const told = await stage.publish(1, { verb: 'told' });
      await stage.parked(told);
      await stage.handled(await stage.publish(2));
      assert.deepEqual(stage.runsOf(told), []);
      await stage.inspector.resume({ type: stage.type('told') });
      await stage.handled(told);

      await stage.inspector.pause({ type: stage.type('*') });
      const sung = await stage.publish(3, { verb: 'sung' });
      await stage.parked(sung);
      assert.deepEqual(stage.runsOf(sung), []);
      await stage.inspector.resume({ type: stage.type('*') });
      await stage.handled(sung);
    });

    test('a tenant', async (stage) => {
      const tenantId = `${stage.durable()}-acme`;
      await stage.inspector.pause({ tenantId });
      const theirs = await stage.publish(1, { tenantId });
      await stage.parked(theirs);
      await stage.handled(await stage.publish(2, { tenantId: 'zenith' }), await stage.publish(3));
      assert.deepEqual(stage.runsOf(theirs), []);
      await stage.inspector.resume({ tenantId });
      await stage.handled(theirs);
    });

    test('what waited for its next attempt waits on, and keeps its count', async (stage) => {
      const failing = stage.gate();
      stage.handle(async (_, { attempt }) => {
        if (attempt > 1) return;
        await failing.pass();
        throw new Error('not yet');
      });
      const id = await stage.publish();
      await failing.reached();
      await stage.inspector.pause({ durable: stage.durable() });
      failing.open();
      await stage.parked(id);
      assert.equal((await stage.delivery(id)).state, 'retryable');
      await stage.inspector.resume({ durable: stage.durable() });
      await stage.handled(id);
      assert.deepEqual(
        stage.runs.map(({ attempt }) => attempt),
        [1, 2],
      );
    });

    test('what runs already runs on to its end', async (stage) => {
      const gate = stage.gate();
      stage.handle(() => gate.pass());
      const id = await stage.publish();
      await gate.reached();
      await stage.inspector.pause({ durable: stage.durable() });
      gate.open();
      await stage.handled(id);
      await stage.inspector.resume({ durable: stage.durable() });
    });

    test('it ends by itself at its end', async (stage) => {
      const until = new Date(Number(await stage.now()) + 2_000);
      const { id: number } = await stage.inspector.pause({ durable: stage.durable() }, { until });
      const began: Date[] = [];
      stage.handle(async (_, { manager }) => {
        const [row] = await manager.query('SELECT clock_timestamp() AS at');
        began.push(row.at);
      });
      await stage.handled(await stage.publish());
      assert.ok(began[0] && began[0] >= until);
      assert.ok(!(await stage.inspector.pauses()).some((pause) => pause.id === number));
    });

    test('what is paused can be cancelled', async (stage) => {
      await stage.inspector.pause({ durable: stage.durable() });
      const id = await stage.publish();
      await stage.parked(id);
      assert.deepEqual(await stage.inspector.cancel({ id }), { cancelled: 1, tooLate: 0 });
      await stage.inspector.resume({ durable: stage.durable() });
      await stage.handled(await stage.publish(2));
      assert.deepEqual(await stage.states(id), { one: 'cancelled' });
    });

    test('pauses tells what, since when, by whom and why; resume whether there was one', async (stage) => {
      const target = { durable: stage.durable() };
      const until = new Date('2100-01-01');
      assert.equal(await stage.inspector.resume(target), false);
      const pause = await stage.inspector.pause(target, { by: 'anna', reason: 'month end', until });
      const { kind, name, by, reason } = pause;
      assert.deepEqual(
        { kind, name, by, reason, until: pause.until },
        { kind: 'durable', name: target.durable, by: 'anna', reason: 'month end', until },
      );
      assert.deepEqual(await listed(stage, target), [pause]);
      assert.equal(await stage.inspector.resume(target), true);
      assert.deepEqual(await listed(stage, target), []);
      assert.equal(await stage.inspector.resume(target), false);
    });

    test('a job: its slots pass, until it is resumed', {
      jobs: { tick: { schedule: { every: '200ms' } }, beat: { schedule: { every: '200ms' } } },
    }, async (stage) => {
      const seen = { tick: 0, beat: 0 };
      stage.work(({ job }) => {
        seen[job === stage.job('tick') ? 'tick' : 'beat'] += 1;
      });
      const more = (name: keyof typeof seen, count: number): Promise<void> => {
        const target = seen[name] + count;
        return until(`${name} ${target}`, async () => seen[name] >= target);
      };
      await more('tick', 2);
      await stage.inspector.pause({ job: stage.job('tick') });
      // Obeyed within two seconds.
      await more('beat', 11);
      const ticks = seen.tick;
      await more('beat', 5);
      assert.equal(seen.tick, ticks);
      assert.equal(await stage.inspector.resume({ job: stage.job('tick') }), true);
      await more('tick', 2);
    });

    alone(
      contract,
      'it outlives processes: paused, deployed, resumed, nothing ran and nothing is lost',
      async (site, stage) => {
        const before = await stage.boot('before');
        await before.inspector.pause({ durable: stage.durable() });
        stage.on(before);
        const ids = [await stage.publish(1)];
        await stage.parked(ids[0] ?? '');
        await site.shut(before);
        stage.on(await stage.boot('after'));
        ids.push(await stage.publish(2));
        await stage.parked(ids[1] ?? '');
        assert.deepEqual(stage.runs, []);
        await stage.inspector.resume({ durable: stage.durable() });
        await stage.handled(...ids);
        assert.equal(stage.runs.length, 2);
      },
    );
  });
}

function runsOf(stage: Stage, durable: string) {
  return stage.runs.filter((run) => run.durable === stage.durable(durable));
}

async function listed(stage: Stage, target: Extract<PauseTarget, { durable: string }>) {
  return (await stage.inspector.pauses()).filter(({ name }) => name === target.durable);
}
