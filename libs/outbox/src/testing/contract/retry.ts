import assert from 'node:assert/strict';
import { SnoozeError, UnrecoverableError } from '../../outbox.errors.js';
import type { Crew } from './crew.js';
import type { Stage } from './stage.js';

/** What becomes of a handler that fails. */
export function retrying(crew: Crew): void {
  crew.group('retry', (test) => {
    test('a failed handler sees the event again, slower each time', {
      durables: { one: { backoff: ['100ms', '900ms'] } },
    }, async (stage) => {
      const times: number[] = [];
      stage.handle(async (_, { manager, attempt }) => {
        const [row] = await manager.query('SELECT clock_timestamp() AS at');
        times.push(Number(row.at));
        if (attempt < 3) throw new Error('not yet');
      });
      const id = await stage.publish();
      await stage.handled(id);
      assert.deepEqual(attempts(stage, id), [1, 2, 3]);
      const [first = 0, second = 0, third = 0] = times;
      // Each step is within a tenth of what it is said to be.
      assert.ok(second - first >= 90);
      assert.ok(third - second >= 810);
    });

    test('a failure is one durable’s own, and its writes are rolled back', {
      durables: { one: {}, two: {} },
    }, async (stage) => {
      const table = 'contract_failures';
      await stage.site.rows(`DROP TABLE IF EXISTS ${table}`);
      await stage.site.rows(`CREATE TABLE ${table} (attempt int)`);
      stage.handle(async (_, { durable, attempt, manager }) => {
        if (durable === stage.durable('two')) return;
        await manager.query(`INSERT INTO ${table} VALUES ($1)`, [attempt]);
        if (attempt === 1) throw new Error('not yet');
      });
      const id = await stage.publish();
      await stage.handled(id);
      assert.deepEqual(await stage.site.rows(`SELECT * FROM ${table}`), [{ attempt: 2 }]);
      assert.equal(stage.runs.filter(({ durable }) => durable === stage.durable('two')).length, 1);
    });

    test('after maxAttempts it is given up, and stays so', { durables: { one: { maxAttempts: 2 } } }, async (stage) => {
      const last: boolean[] = [];
      stage.handle((_, { isLastAttempt }) => {
        last.push(isLastAttempt);
        throw new Error('never');
      });
      const id = await stage.publish();
      await stage.reaches(id, 'discarded');
      stage.handle(() => {});
      await stage.handled(await stage.publish(2));
      assert.deepEqual(attempts(stage, id), [1, 2]);
      assert.deepEqual(last, [false, true]);
    });

    test('an unrecoverable error gives up at once', async (stage) => {
      stage.handle(() => {
        throw new UnrecoverableError('no address');
      });
      const id = await stage.publish();
      await stage.reaches(id, 'discarded');
      assert.deepEqual(attempts(stage, id), [1]);
    });

    test('a snooze comes back later, and is no attempt', { durables: { one: { maxAttempts: 1 } } }, async (stage) => {
      let snoozes = 0;
      stage.handle(() => {
        if (snoozes++ < 2) throw new SnoozeError('100ms', 'night');
      });
      const id = await stage.publish();
      await stage.handled(id);
      assert.deepEqual(attempts(stage, id), [1, 1, 1]);
    });

    test('while it snoozes it is retryable', async (stage) => {
      stage.handle(() => {
        throw new SnoozeError('1h', 'night');
      });
      const id = await stage.publish();
      await stage.reaches(id, 'retryable');
      assert.deepEqual((await stage.inspector.get(id))?.attempts, []);
      assert.equal((await stage.delivery(id)).attempts, 0);
    });
  });
}

export function attempts(stage: Stage, eventId: string): number[] {
  return stage.runsOf(eventId).map(({ attempt }) => attempt);
}
