import assert from 'node:assert/strict';
import type { ExplainQuery, Finding } from '../../inspect/explain.js';
import { UnrecoverableError } from '../../outbox.errors.js';
import { until } from '../probe-app.js';
import { nobody, occupied } from './cancel.js';
import { alone, type Contract, type Crew } from './crew.js';
import type { Stage } from './stage.js';

/** Why did that not run? A reason for each durable, in words. */
export function explaining(contract: Contract, crew: Crew): void {
  crew.group('explain', (test) => {
    test('not-found: nobody published it, or its transaction rolled back', async (stage) => {
      for (const query of [{ id: nobody }, { subject: 'order/none' }, { unique: 'none', type: stage.type() }])
        assert.deepEqual(await reasons(stage, query), ['- not-found']);
    });

    test('not-due: it waits for its time', { durables: { one: {}, two: {} } }, async (stage) => {
      const id = await stage.publish(1, { delay: '1h' });
      const said = await reasons(stage, { id });
      assert.ok(said.length > 0);
      assert.deepEqual([...new Set(said.map((text) => text.split(' ')[1]))], ['not-due']);
    });

    test('no-subscriber: no durable handles its type', { types: ['asked'], durables: {} }, async (stage) => {
      const id = await stage.publish();
      await stage.forwarded(id);
      assert.deepEqual(await reasons(stage, { id }), ['- no-subscriber']);
    });

    let before = '';
    const early = async (stage: Stage): Promise<void> => {
      before = await stage.publish();
    };
    test('not-meant: the durable registered later', { early }, async (stage) => {
      await stage.handled(await stage.publish(2));
      await stage.forwarded(before);
      const { findings } = await stage.inspector.explain({ id: before });
      assert.ok(worded(stage, findings).includes('one not-meant'));
      assert.deepEqual(stage.runsOf(before), []);
    });

    test('queued: it is due, and waits for a slot', { durables: { one: { concurrency: 1 } } }, async (stage) => {
      const { second } = await occupied(stage);
      assert.deepEqual(await reasons(stage, { id: second }), ['one queued']);
    });

    test('running: a handler has it', async (stage) => {
      const gate = stage.gate();
      stage.handle(() => gate.pass());
      const id = await stage.publish();
      await gate.reached();
      await stage.reaches(id, 'running');
      assert.deepEqual(await reasons(stage, { id }), ['one running']);
    });

    test('retrying: it failed, and the text has the error', {
      durables: { one: { backoff: ['1h'] } },
    }, async (stage) => {
      stage.handle(() => {
        throw new Error('no ink');
      });
      const id = await stage.publish();
      await stage.reaches(id, 'retryable');
      const { findings, text } = await stage.inspector.explain({ id });
      assert.deepEqual(worded(stage, findings), ['one retrying']);
      assert.match(text, /no ink/);
    });

    test('dead: it was given up, and the next command is a retry', async (stage) => {
      stage.handle(() => {
        throw new UnrecoverableError('no address');
      });
      const id = await stage.publish();
      await stage.reaches(id, 'discarded');
      const { findings, text } = await stage.inspector.explain({ id });
      assert.deepEqual(worded(stage, findings), ['one dead']);
      assert.match(text, /no address/);
      assert.match(findings[0]?.next ?? '', /retry/);
    });

    test('paused: the text says by whom and why, and the next command resumes', async (stage) => {
      await stage.inspector.pause({ durable: stage.durable() }, { by: 'anna', reason: 'month end' });
      const id = await stage.publish();
      await stage.parked(id);
      const { findings, text } = await stage.inspector.explain({ id });
      assert.deepEqual(worded(stage, findings), ['one paused']);
      assert.match(text, /anna/);
      assert.match(text, /month end/);
      assert.match(findings[0]?.next ?? '', /resume/);
      await stage.inspector.resume({ durable: stage.durable() });
    });

    test('handled and cancelled: it has ended', { durables: { one: {}, two: { backoff: ['1h'] } } }, async (stage) => {
      stage.handle((_, { durable }) => {
        if (durable === stage.durable('two')) throw new Error('not yet');
      });
      const id = await stage.publish();
      await stage.reaches(id, 'completed');
      await stage.reaches(id, 'retryable', 'two');
      await stage.inspector.cancel({ id });
      assert.deepEqual(await reasons(stage, { id }), ['one handled', 'two cancelled']);
    });

    test('by subject and by unique key as by id', async (stage) => {
      const id = await stage.publish(1, { subject: 'order/1', unique: 'key' });
      await stage.handled(id);
      for (const query of [
        { subject: 'order/1', type: stage.type() },
        { unique: 'key', type: stage.type() },
      ]) {
        const { events, findings } = await stage.inspector.explain(query);
        assert.deepEqual(
          events.map((event) => event.id),
          [id],
        );
        assert.deepEqual(worded(stage, findings), ['one handled']);
      }
    });

    alone(contract, 'relay-stopped: it is in the queue, and no worker lives', async (site, stage) => {
      const worker = await stage.boot('worker');
      const publisher = await stage.boot('publisher', { role: 'publisher', subscriptions: [] });
      stage.on(publisher);
      await stage.handled(await stage.publish(1));
      await site.shut(worker);
      const id = await stage.publish(2);
      let said: string[] = [];
      await until('relay-stopped', async () => {
        said = await reasons(stage, { id });
        return said.includes('- relay-stopped');
      }).catch((error: Error) => assert.fail(`${error.message}; last said: ${said.join()}`));
    });
  });
}

/** `durable reason` of each finding. */
async function reasons(stage: Stage, query: ExplainQuery): Promise<string[]> {
  const { findings, text } = await stage.inspector.explain(query);
  assert.ok(text.length > 0);
  return worded(stage, findings);
}

function worded(stage: Stage, findings: readonly Finding[]): string[] {
  for (const { text } of findings) assert.ok(text.length > 0);
  return findings.map(({ durable, reason }) => `${stage.short(durable)} ${reason}`).sort();
}
