import assert from 'node:assert/strict';
import { deliveryStates } from '../../inspect/delivery-info.js';
import { UnrecoverableError } from '../../outbox.errors.js';
import { occupied } from './cancel.js';
import type { Crew } from './crew.js';
import type { Stage } from './stage.js';

/** The six states, the same through the inspector's two doors and in the public view. */
export function states(crew: Crew): void {
  crew.group('states', (test) => {
    test('pending: it is not due, or waits for a slot', { durables: { one: { concurrency: 1 } } }, async (stage) => {
      const later = await agreed(stage, await stage.publish(1, { delay: '1h' }), 'pending');
      assert.ok(Number(later.dueAt) > Number(later.publishedAt));
      const { second } = await occupied(stage);
      assert.equal((await agreed(stage, second, 'pending')).attempts, 0);
    });

    test('running: a worker says that it has it', async (stage) => {
      const gate = stage.gate();
      stage.handle(() => gate.pass());
      const id = await stage.publish();
      await gate.reached();
      const { worker, since } = await agreed(stage, id, 'running');
      assert.ok(worker);
      assert.ok(since);
    });

    test('retryable: it failed, and waits for its next attempt', {
      durables: { one: { backoff: ['1h'] } },
    }, async (stage) => {
      stage.handle(() => {
        throw new Error('no ink');
      });
      const { attempts, error, dueAt, publishedAt } = await agreed(stage, await stage.publish(), 'retryable');
      assert.equal(attempts, 1);
      assert.match(error ?? '', /no ink/);
      assert.ok(Number(dueAt) - Number(publishedAt) > 3_000_000);
    });

    test('completed: it was handled', async (stage) => {
      const delivery = await agreed(
        stage,
        await stage.publish(1, { subject: 'order/1', tenantId: 'acme' }),
        'completed',
      );
      const { attempts, error, type, tenantId, subject, pause } = delivery;
      assert.deepEqual(
        { attempts, error, type, tenantId, subject, pause },
        { attempts: 1, error: null, type: stage.type(), tenantId: 'acme', subject: 'order/1', pause: null },
      );
    });

    test('discarded: it was given up', async (stage) => {
      stage.handle(() => {
        throw new UnrecoverableError('no address');
      });
      const { attempts, error } = await agreed(stage, await stage.publish(), 'discarded');
      assert.equal(attempts, 1);
      assert.match(error ?? '', /no address/);
    });

    test('cancelled: it is not to run', async (stage) => {
      const id = await stage.publish(1, { delay: '1h' });
      await stage.inspector.cancel({ id });
      await agreed(stage, id, 'cancelled');
    });
  });
}

/** Waits for the state in the view; list and get then say the same. */
async function agreed(stage: Stage, id: string, state: (typeof deliveryStates)[number]) {
  await stage.reaches(id, state);
  const listed = await stage.delivery(id);
  const details = await stage.inspector.get(id);
  assert.equal(listed.state, state);
  assert.deepEqual(details?.deliveries, [listed]);
  const others = deliveryStates.filter((other) => other !== state);
  assert.deepEqual((await stage.inspector.list({ eventId: id, state: others })).deliveries, []);
  return listed;
}
