import assert from 'node:assert/strict';
import { UnrecoverableError } from '../../outbox.errors.js';
import { nobody } from './cancel.js';
import type { Crew } from './crew.js';
import { attempts } from './retry.js';
import type { Stage } from './stage.js';

/** What somebody on call does to single deliveries, and to many. */
export function operating(crew: Crew): void {
  crew.group('operate', (test) => {
    test('a retried dead letter runs again from attempt 1, by this durable alone', {
      durables: { one: {}, two: {} },
    }, async (stage) => {
      const [id = ''] = await deadLetters(stage, 1);
      stage.handle(() => {});
      assert.deepEqual(await outcome(stage, id), 'done');
      await stage.reaches(id, 'completed');
      assert.deepEqual(
        stage
          .runsOf(id)
          .filter(({ durable }) => durable === stage.durable())
          .map(({ attempt }) => attempt),
        [1, 1],
      );
      assert.equal((await stage.states(id))['two'], 'discarded');
    });

    test('what waits for its next attempt runs now when it is retried', {
      durables: { one: { backoff: ['1h'] } },
    }, async (stage) => {
      stage.handle((_, { attempt }) => {
        if (attempt === 1) throw new Error('not yet');
      });
      const id = await stage.publish();
      await stage.reaches(id, 'retryable');
      assert.equal(await outcome(stage, id), 'done');
      await stage.handled(id);
      assert.deepEqual(attempts(stage, id), [1, 2]);
    });

    test('there is nothing to retry of what was handled, and of what nobody knows', async (stage) => {
      const id = await stage.publish();
      await stage.handled(id);
      assert.equal(await outcome(stage, id), 'unchanged');
      assert.equal(await outcome(stage, nobody), 'not-found');
      await stage.handled(await stage.publish(2));
      assert.equal(stage.runsOf(id).length, 1);
    });

    test('of two who retry one at once, one does', async (stage) => {
      const [id = ''] = await deadLetters(stage, 1);
      stage.handle(() => {});
      const both = await Promise.all([outcome(stage, id), outcome(stage, id)]);
      assert.ok(both.includes('done'));
      await stage.reaches(id, 'completed');
      await stage.handled(await stage.publish(2));
      assert.equal(stage.runsOf(id).length, 2);
    });

    test('retryMany by filter: first what it would do, then an outcome per row', async (stage) => {
      const ids = await deadLetters(stage, 6, (n) => ({ tenantId: n % 2 ? 'odd' : 'even' }));
      stage.handle(() => {});
      const filter = { type: stage.type(), tenantId: 'odd' };
      const seen: string[] = [];
      const dry = await stage.inspector.retryMany(filter, { dryRun: true });
      assert.deepEqual(
        { dryRun: dry.dryRun, matched: dry.matched, failed: dry.failed },
        { dryRun: true, matched: 3, failed: 0 },
      );
      for (const id of ids) assert.deepEqual(await stage.states(id), { one: 'discarded' });
      const real = await stage.inspector.retryMany(filter, { onRow: ({ eventId }) => seen.push(eventId) });
      assert.deepEqual(
        { dryRun: real.dryRun, matched: real.matched, done: real.done },
        { dryRun: false, matched: 3, done: 3 },
      );
      const [, first = '', , second = '', , third = ''] = ids;
      assert.deepEqual([...seen].sort(), [first, second, third].sort());
      assert.deepEqual(real.rows.map(({ eventId }) => eventId).sort(), [...seen].sort());
      await stage.handled(first, second, third);
      assert.deepEqual(await stage.states(ids[0] ?? ''), { one: 'discarded' });
    });

    test('discard closes dead letters, which are not retried any more', async (stage) => {
      const ids = await deadLetters(stage, 2);
      stage.handle(() => {});
      const durable = stage.durable();
      const report = await stage.inspector.discard({ eventId: ids[0] ?? '', durable });
      assert.deepEqual({ matched: report.matched, done: report.done }, { matched: 1, done: 1 });
      assert.equal((await stage.inspector.retryMany({ durable })).done, 1);
      await stage.reaches(ids[1] ?? '', 'completed');
      assert.deepEqual(await stage.states(ids[0] ?? ''), { one: 'discarded' });
    });

    test('send delivers to one durable: not again what it has handled, unless forced', {
      durables: { one: {}, two: {} },
    }, async (stage) => {
      const id = await stage.publish();
      await stage.handled(id);
      const to = stage.durable();
      assert.equal((await stage.inspector.send(id, { to })).outcome, 'unchanged');
      const again = stage.gate();
      stage.handle(() => again.pass());
      assert.equal((await stage.inspector.send(id, { to, force: true })).outcome, 'done');
      await again.reached();
      again.open();
      await stage.handled(id);
      assert.deepEqual(
        stage
          .runsOf(id)
          .map(({ durable }) => durable)
          .sort(),
        [stage.durable(), stage.durable(), stage.durable('two')],
      );
    });

    let before = '';
    const early = async (stage: Stage): Promise<void> => {
      before = await stage.publish();
    };
    test('send reaches a durable that registered later', { early }, async (stage) => {
      await stage.handled(await stage.publish(2));
      assert.deepEqual(stage.runsOf(before), []);
      assert.equal((await stage.inspector.send(before, { to: stage.durable() })).outcome, 'done');
      await stage.handled(before);
    });

    test('who did what, and why, is written down', async (stage) => {
      const [id = ''] = await deadLetters(stage, 1);
      stage.handle(() => {});
      const told = { by: 'anna', reason: `address ${stage.type()}` };
      assert.equal((await stage.inspector.retry(id, stage.durable(), told)).outcome, 'done');
      const rows = await stage.site.rows('SELECT who, action FROM outbox.audit WHERE why = $1', [told.reason]);
      assert.deepEqual(rows, [{ who: 'anna', action: 'retry' }]);
      await stage.handled(id);
    });
  });
}

async function outcome(stage: Stage, id: string): Promise<string> {
  return (await stage.inspector.retry(id, stage.durable())).outcome;
}

/** Events that each durable of the test has given up. */
async function deadLetters(
  stage: Stage,
  count: number,
  options: (n: number) => { tenantId?: string } = () => ({}),
): Promise<string[]> {
  stage.handle(() => {
    throw new UnrecoverableError('no address');
  });
  const ids: string[] = [];
  for (let n = 0; n < count; n++) ids.push(await stage.publish(n, options(n)));
  for (const id of ids)
    for (const durable of stage.durables) await stage.reaches(id, 'discarded', stage.short(durable));
  return ids;
}
