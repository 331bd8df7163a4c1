import assert from 'node:assert/strict';
import { until } from '../probe-app.js';
import type { Crew } from './crew.js';

/** Publishing the same once. */
export function uniqueEvents(crew: Crew): void {
  crew.group('unique', (test) => {
    test('a duplicate is answered with the event that stands, and runs no second time', async (stage) => {
      const first = await stage.offer(1, { unique: 'key' });
      await stage.handled(first.id);
      const second = await stage.offer(2, { unique: 'key' });
      assert.deepEqual([first.duplicate, second], [false, { id: first.id, duplicate: true }]);
      await stage.handled(await stage.publish(3));
      assert.equal(stage.runsOf(first.id).length, 1);
      assert.equal(stage.runs.length, 2);
    });

    test('the payload itself is a key, in whatever order its names come', async (stage) => {
      const offer = (payload: object) => stage.publisher.publishNow(stage.type(), payload, { unique: true });
      const first = await offer({ n: 1, of: { a: 1, b: [2] } });
      assert.deepEqual(await offer({ of: { b: [2], a: 1 }, n: 1 }), { id: first.id, duplicate: true });
      assert.equal((await offer({ n: 2, of: { a: 1, b: [2] } })).duplicate, false);
    });

    test('a key is one within its tenant and its type', { types: ['asked', 'told'] }, async (stage) => {
      const offers = [
        await stage.offer(1, { unique: 'key' }),
        await stage.offer(1, { unique: 'key', tenantId: 'acme' }),
        await stage.offer(1, { unique: 'key', tenantId: 'zenith' }),
        await stage.offer(1, { unique: 'key', verb: 'told' }),
      ];
      assert.deepEqual(
        offers.map(({ duplicate }) => duplicate),
        [false, false, false, false],
      );
      assert.equal((await stage.offer(1, { unique: 'key', tenantId: 'acme' })).duplicate, true);
    });

    test('equal keys of one statement are folded onto the first', async (stage) => {
      const { dataSource, publisher } = stage.app;
      const event = (n: number) => ({ event: stage.type(), payload: { n }, unique: 'key' });
      const [first, second] = await dataSource.transaction(() => publisher.publishMany([event(1), event(2)]));
      assert.deepEqual([first?.duplicate, second], [false, { id: first?.id, duplicate: true }]);
    });

    test('an equal event that is not committed yet is waited for, and ours stands when it rolls back', async (stage) => {
      const { dataSource, publisher } = stage.app;
      const held = stage.gate();
      const theirs = dataSource.transaction(async () => {
        await publisher.publish(stage.type(), { n: 1 }, { unique: 'key' });
        await held.pass();
        throw new Error('rolled back');
      });
      await held.reached();
      const ours = stage.offer(2, { unique: 'key' });
      const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
      await until('ours waits', async () => (await stage.site.rows(waits)).length > 0);
      held.open();
      await assert.rejects(theirs, /rolled back/);
      const { id, duplicate } = await ours;
      assert.equal(duplicate, false);
      await stage.handled(id);
    });

    test('a key stands for as long as it was said to', async (stage) => {
      const unique = { key: 'key', for: '1s' } as const;
      const began = await stage.now();
      const first = await stage.offer(1, { unique });
      let next = first;
      await until('the key is free', async () => {
        next = await stage.offer(2, { unique });
        return !next.duplicate;
      });
      assert.ok(Number(await stage.now()) - Number(began) >= 1_000);
      assert.notEqual(next.id, first.id);
      await stage.handled(first.id, next.id);
    });

    test('a cancelled event frees its key', async (stage) => {
      const first = await stage.offer(1, { unique: 'key', delay: '1h' });
      assert.deepEqual(await stage.cancel({ id: first.id }), { cancelled: 1, tooLate: 0 });
      const second = await stage.offer(2, { unique: 'key' });
      assert.equal(second.duplicate, false);
      await stage.handled(second.id);
      assert.deepEqual(stage.runsOf(first.id), []);
    });
  });
}
