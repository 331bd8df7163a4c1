import assert from 'node:assert/strict';
import type { Crew } from './crew.js';
import type { Stage } from './stage.js';

/** Cancelling wins until a handler has claimed, and says so. */
export function cancelling(crew: Crew): void {
  crew.group('cancel', (test) => {
    test("the publisher's, before it is due: no durable gets it", two, async (stage) => {
      const id = await stage.publish(1, { delay: '2s' });
      assert.deepEqual(await stage.cancel({ id }), { cancelled: 2, tooLate: 0 });
      await stage.handled(await stage.publish(2, { delay: '2200ms' }));
      assert.deepEqual(await stage.states(id), { one: 'cancelled', two: 'cancelled' });
      assert.deepEqual(stage.runsOf(id), []);
    });

    test('in a transaction that rolls back nothing is cancelled', async (stage) => {
      const id = await stage.publish(1, { delay: '2s' });
      const rolledBack = stage.app.dataSource.transaction(async () => {
        assert.deepEqual(await stage.publisher.cancel({ id }), { cancelled: 1, tooLate: 0 });
        throw new Error('rolled back');
      });
      await assert.rejects(rolledBack, /rolled back/);
      await stage.handled(id);
    });

    test('before its commit a cancel is taken back by nobody, and after it nothing runs', async (stage) => {
      const { dataSource, publisher } = stage.app;
      const id = await dataSource.transaction(async () => {
        const { id } = await publisher.publish(stage.type(), { n: 1 });
        assert.deepEqual(await publisher.cancel({ id }), { cancelled: 1, tooLate: 0 });
        return id;
      });
      await stage.handled(await stage.publish(2));
      assert.deepEqual(await stage.states(id), { one: 'cancelled' });
      assert.deepEqual(stage.runsOf(id), []);
    });

    test('after it was forwarded, while it waits for a slot', busy, async (stage) => {
      const { first, second, gate } = await occupied(stage);
      assert.deepEqual(await stage.cancel({ id: second }), { cancelled: 1, tooLate: 0 });
      gate.open();
      await stage.handled(first, await stage.publish(3));
      assert.deepEqual(await stage.states(second), { one: 'cancelled' });
      assert.deepEqual(stage.runsOf(second), []);
    });

    test("after the claim it is too late, and the caller's transaction goes on", async (stage) => {
      const gate = stage.gate();
      stage.handle(({ payload }) => payload.n === 1 && gate.pass());
      const id = await stage.publish(1);
      await gate.reached();
      const { dataSource, publisher } = stage.app;
      const next = await dataSource.transaction(async () => {
        assert.deepEqual(await publisher.cancel({ id }), { cancelled: 0, tooLate: 1 });
        return (await publisher.publish(stage.type(), { n: 2 })).id;
      });
      gate.open();
      await stage.handled(id, next);
      assert.deepEqual(await stage.cancel({ id }), { cancelled: 0, tooLate: 1 });
    });

    test('each durable by itself: one runs, and the other does not begin', two, async (stage) => {
      const gate = stage.gate();
      stage.handle(async (_, { durable }) => {
        if (durable === stage.durable('one')) return gate.pass();
        throw new Error('not yet');
      });
      const id = await stage.publish();
      await gate.reached();
      await stage.reaches(id, 'retryable', 'two');
      assert.deepEqual(await stage.cancel({ id }), { cancelled: 1, tooLate: 1 });
      gate.open();
      await stage.reaches(id, 'completed', 'one');
      assert.equal((await stage.states(id))['two'], 'cancelled');
    });

    test('what waits for its next attempt is cancelled, too', slow, async (stage) => {
      stage.handle(() => {
        throw new Error('not yet');
      });
      const id = await stage.publish();
      await stage.reaches(id, 'retryable');
      assert.deepEqual(await stage.cancel({ id }), { cancelled: 1, tooLate: 0 });
      assert.deepEqual(await stage.states(id), { one: 'cancelled' });
    });

    test('once is enough: the second answers nothing, and so does an id of nobody', async (stage) => {
      const id = await stage.publish(1, { delay: '1h' });
      assert.deepEqual(await stage.cancel({ id }), { cancelled: 1, tooLate: 0 });
      assert.deepEqual(await stage.cancel({ id }), { cancelled: 0, tooLate: 0 });
      assert.deepEqual(await stage.cancel({ id: nobody }), { cancelled: 0, tooLate: 0 });
    });

    test('by unique key and by subject, of one type and tenant', { types: ['asked', 'told'] }, async (stage) => {
      const options = { delay: '1h', tenantId: 'acme' } as const;
      const keyed = await stage.publish(1, { ...options, unique: 'key' });
      const about = await stage.publish(2, { ...options, subject: 'order/1' });
      const others = [
        await stage.publish(3, { ...options, subject: 'order/2' }),
        await stage.publish(4, { ...options, subject: 'order/1', verb: 'told' }),
        await stage.publish(5, { delay: '1h', subject: 'order/1', unique: 'key' }),
      ];
      const of = { event: stage.type(), tenantId: 'acme' };
      assert.deepEqual(await stage.cancel({ ...of, unique: 'key' }), { cancelled: 1, tooLate: 0 });
      assert.deepEqual(await stage.cancel({ ...of, subject: 'order/1' }), { cancelled: 1, tooLate: 0 });
      for (const id of [keyed, about]) assert.deepEqual(await stage.states(id), { one: 'cancelled' });
      for (const id of others) assert.deepEqual(await stage.states(id), { one: 'pending' });
    });

    test("the inspector's does the same in a transaction of its own", async (stage) => {
      const id = await stage.publish(1, { delay: '1h', subject: 'order/1' });
      const far = await stage.publish(2, { delay: '3d', subject: 'order/1' });
      const answer = await stage.inspector.cancel(
        { event: stage.type(), subject: 'order/1' },
        { by: 'anna', reason: 'moved' },
      );
      assert.deepEqual(answer, { cancelled: 2, tooLate: 0 });
      for (const each of [id, far]) assert.deepEqual(await stage.states(each), { one: 'cancelled' });
    });

    test('with abort the signal of the handler that runs it aborts', async (stage) => {
      const gate = stage.gate();
      const aborted = stage.gate();
      stage.handle(async ({ payload }, { signal }) => {
        if (payload.n !== 1) return;
        signal.addEventListener('abort', () => aborted.pass());
        await gate.pass();
      });
      const id = await stage.publish(1);
      await gate.reached();
      assert.deepEqual(await stage.inspector.cancel({ id }, { abort: true }), { cancelled: 0, tooLate: 1 });
      await aborted.reached();
    });
  });
}

const two = { durables: { one: {}, two: { backoff: ['1h'] } } } as const;
const busy = { durables: { one: { concurrency: 1 } } };
const slow = { durables: { one: { backoff: ['1h'] } } } as const;

/** The UUID of no event. */
export const nobody = '01890000-0000-7000-8000-000000000000';

/** One that runs and holds the durable's only slot, and one behind it that has left the queue. */
export async function occupied(stage: Stage) {
  const gate = stage.gate();
  stage.handle(({ payload }) => payload.n === 1 && gate.pass());
  const first = await stage.publish(1);
  await gate.reached();
  const second = await stage.publish(2);
  await stage.forwarded(second);
  return { first, second, gate };
}
