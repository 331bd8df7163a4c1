import assert from 'node:assert/strict';
import { UnrecoverableError } from '../../outbox.errors.js';
import type { Crew } from './crew.js';
import type { Stage } from './stage.js';

/** Waiting for an event to have ended. */
export function waiting(crew: Crew): void {
  crew.group('wait', (test) => {
    test('resolves when each durable has handled it, and not before', {
      durables: { one: {}, two: {} },
    }, async (stage) => {
      const gate = stage.gate();
      stage.handle((_, { durable }) => durable === stage.durable('two') && gate.pass());
      const id = await stage.publish();
      let resolved = false;
      const ended = stage.inspector.wait(id, patient).then((all) => {
        resolved = true;
        return all;
      });
      await gate.reached();
      await stage.reaches(id, 'completed');
      assert.equal(resolved, false);
      gate.open();
      await ended;
      assert.deepEqual(await outcomes(stage, ended), ['one completed', 'two completed']);
    });

    test('resolves at once when it has ended already', async (stage) => {
      const id = await stage.publish();
      await stage.handled(id);
      assert.deepEqual(await outcomes(stage, stage.inspector.wait(id, patient)), ['one completed']);
    });

    test('tells what was given up, with its error', { durables: { one: {}, two: {} } }, async (stage) => {
      stage.handle((_, { durable }) => {
        if (durable === stage.durable('two')) throw new UnrecoverableError('no address');
      });
      const ended = stage.inspector.wait(await stage.publish(), patient);
      assert.deepEqual(await outcomes(stage, ended), ['one completed', 'two discarded']);
      const dead = (await ended).find(({ state }) => state === 'discarded');
      assert.match(dead?.error ?? '', /no address/);
    });

    test('waits through retries', async (stage) => {
      stage.handle((_, { attempt }) => {
        if (attempt < 3) throw new Error('not yet');
      });
      const id = await stage.publish();
      assert.deepEqual(await outcomes(stage, stage.inspector.wait(id, patient)), ['one completed']);
      assert.equal(stage.runsOf(id).length, 3);
    });

    test('resolves when it is cancelled', async (stage) => {
      const id = await stage.publish(1, { delay: '1h' });
      const ended = stage.inspector.wait(id, patient);
      await stage.inspector.cancel({ id });
      assert.deepEqual(await outcomes(stage, ended), ['one cancelled']);
    });

    test('gives up after its timeout, and names what is open', { durables: { one: {}, two: {} } }, async (stage) => {
      const gate = stage.gate();
      stage.handle((_, { durable }) => durable === stage.durable('two') && gate.pass());
      const id = await stage.publish();
      await gate.reached();
      await stage.reaches(id, 'completed');
      await assert.rejects(stage.inspector.wait(id, { timeout: '300ms' }), (error: Error) => {
        assert.equal(error.name, 'WaitTimeoutError');
        assert.ok(error.message.includes(stage.durable('two')), error.message);
        assert.ok(!error.message.includes(stage.durable('one')), error.message);
        return true;
      });
    });

    test('ends when its signal aborts', async (stage) => {
      const id = await stage.publish(1, { delay: '1h' });
      const controller = new AbortController();
      const ended = stage.inspector.wait(id, { ...patient, signal: controller.signal });
      controller.abort(new Error('enough'));
      await assert.rejects(ended);
    });

    test('any number at once, each for its own', async (stage) => {
      const ids: string[] = [];
      for (let n = 0; n < 20; n++) ids.push(await stage.publish(n, { delay: n % 2 ? '300ms' : '100ms' }));
      const all = await Promise.all(ids.map((id) => stage.inspector.wait(id, patient)));
      assert.equal(all.flat().filter(({ state }) => state === 'completed').length, 20);
      assert.equal(stage.runs.length, 20);
    });
  });
}

const patient = { timeout: '60s' } as const;

async function outcomes(stage: Stage, ended: ReturnType<Stage['inspector']['wait']>): Promise<string[]> {
  return (await ended).map(({ durable, state }) => `${stage.short(durable)} ${state}`).sort();
}
