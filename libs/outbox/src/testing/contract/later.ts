import assert from 'node:assert/strict';
import type { Crew } from './crew.js';
import type { Stage } from './stage.js';

/** What is to run later does, by the database's clock. */
export function runningLater(crew: Crew): void {
  crew.group('run later', (test) => {
    test('a delayed event runs after its delay', async (stage) => {
      const began = handlerClock(stage);
      const published = await stage.now();
      await stage.handled(await stage.publish(1, { delay: '800ms' }));
      assert.ok(Number(await began) - Number(published) >= 800);
    });

    test('an event with an instant runs then, and not before', async (stage) => {
      const began = handlerClock(stage);
      const runAt = new Date(Number(await stage.now()) + 800);
      await stage.handled(await stage.publish(1, { runAt }));
      assert.ok((await began) >= runAt);
    });

    test('an instant in the past means now', async (stage) => {
      await stage.handled(await stage.publish(1, { runAt: new Date('2001-01-01') }));
    });

    test('what is due later keeps nobody waiting', async (stage) => {
      const later = await stage.publish(1, { delay: '1h' });
      await stage.handled(await stage.publish(2));
      assert.deepEqual(await stage.states(later), { one: 'pending' });
      assert.deepEqual(stage.runsOf(later), []);
    });

    test('what is due in days waits as well, and says when', async (stage) => {
      const runAt = new Date(Number(await stage.now()) + 3 * 86_400_000);
      const id = await stage.publish(1, { runAt });
      const details = await stage.inspector.get(id);
      assert.equal(details?.relay.state, 'scheduled');
      assert.deepEqual(details?.relay.dueAt, runAt);
      const { state, dueAt } = await stage.delivery(id);
      assert.deepEqual({ state, dueAt }, { state: 'pending', dueAt: runAt });
    });
  });
}

/** When its next handler began, by the database. */
function handlerClock(stage: Stage): Promise<Date> {
  return new Promise((resolve) => {
    stage.handle(async (_, { manager }) => {
      const [row] = await manager.query('SELECT clock_timestamp() AS at');
      resolve(row.at);
    });
  });
}
